"""Tests with real sockets, processes or installations, in folders by subject."""
