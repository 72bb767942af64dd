"""Errors of security settings and of authentication."""

from __future__ import annotations


class CannotSecure(ValueError):
    """A certificate, key, tokens or rules file is not usable. The message is one line for the
    operator, and contains no secret."""


class Unauthenticated(Exception):
    """No valid credential. The message says what to do, and contains nothing of the credential."""


class KeysUnavailable(Exception):
    """The keys that verify tokens cannot be fetched at present; the caller may try again."""
