"""What the optional compiled build needs to know, and Python itself does not.

mypyc makes a class final unless it is told that plain Python will subclass it. It is told
by a decorator of `mypy_extensions`, which only the type checker and the compiler look at:
this library runs on the standard library alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """Leave the class as it is."""
        return lambda decorated: decorated
