"""What can be wrong with what secures a node, and with those who call it."""

from __future__ import annotations


class CannotSecure(ValueError):
    """A certificate, key, tokens or rules file is not usable. The message is one line, for the
    operator, and holds no secret."""


class Unauthenticated(Exception):
    """Nobody knows who calls. The message says what to do, and holds nothing of the credential."""


class KeysUnavailable(Exception):
    """The keys that a token was signed with cannot be had at present: not the caller's fault."""
