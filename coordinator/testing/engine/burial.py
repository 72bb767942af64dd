"""Destroying suspended coroutines without running another line of theirs.

A killed process runs no `finally`. But its coroutines live in the same interpreter as the
rest, and when a suspended coroutine is closed or collected, CPython throws GeneratorExit into
it, which runs its `finally` blocks and leaves its `with` blocks. CPython does so by entering
the coroutine's frame. When there is no room left below the recursion limit, that entry fails
before the first instruction, and CPython takes the frame apart as it stands, together with
the frames that it awaits and the generators that it holds.

So: recurse as deep as it goes, and close there. The deepest frame has no room even for the
call of `close` (Python 3.11 counts calls of C functions too); then the frame above has.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Sequence
from types import CoroutineType
from typing import Any


def bury(coroutines: Sequence[CoroutineType[Any, Any, Any]]) -> None:
    """Close coroutines; no line of them runs, and nothing warns.

    They must not be running; finished ones are let be. What they held in local variables is
    released; finalizers (`__del__`) of objects that only they held do not run either.
    """
    if not coroutines:
        return
    unraisable_hook = sys.unraisablehook
    with warnings.catch_warnings(), contextlib.redirect_stderr(None):
        warnings.simplefilter("ignore")  # "coroutine ... was never awaited"
        sys.unraisablehook = sys.__unraisablehook__  # It writes to stderr, and there is none.
        try:
            _close_at_the_limit(coroutines)
        finally:
            sys.unraisablehook = unraisable_hook


def _close_at_the_limit(coroutines: Sequence[CoroutineType[Any, Any, Any]]) -> None:
    try:
        _close_at_the_limit(coroutines)
    except RecursionError:
        for coroutine in coroutines:
            try:
                coroutine.close()
            except RecursionError:
                if coroutine.cr_frame is not None:
                    raise
