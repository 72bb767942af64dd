"""The garbage collector, kept out of the way of large loads.

What is loaded stays: a collection would walk over millions of objects, holding everything
up, and find nothing. So while something is loaded none takes place, and what is there at
the end is not looked at again.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_loading = 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No collection meanwhile, and none of what is there at the end. May be nested."""
    global _loading  # noqa: PLW0603  # The collector is the process's.
    _loading += 1
    gc.disable()
    try:
        yield
    finally:
        _loading -= 1
        if _loading == 0:
            gc.freeze()
            gc.enable()


def forget() -> None:
    """Look at everything again: a good deal is not used any more. It takes a while."""
    gc.unfreeze()
    gc.collect()
    if _loading == 0:
        gc.freeze()
