"""Wheels, image, chart, unit and site as they are shipped, and the programs of the tests."""
