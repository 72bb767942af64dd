"""A decorator for the optional build with mypyc; a no-op in Python.

mypyc compiles a class as final unless `mypy_extensions.mypyc_attr` allows subclasses in
plain Python. Only the type checker and the compiler import `mypy_extensions`: this library
runs on the standard library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """Return a decorator that changes nothing."""
        return lambda decorated: decorated
