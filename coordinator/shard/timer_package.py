"""Check that `timer` is the package of this project and not a module of the user's.

A script `timer.py` beside the program, or in the working directory of `python -m coordinator`, is
found first, and importing from it fails in words that do not help. It is not run by the check.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec


def check_timer() -> None:
    """Look where `import timer` leads.

    Raises:
        ImportError: to another module; the message names its file. `name` is "timer".
    """
    try:
        spec = find_spec("timer")
    except ValueError:  # A module that was put into sys.modules without a spec.
        return
    if spec is None:
        return
    locations = spec.submodule_search_locations
    if locations is not None and any(
        finder.find_spec("timer.purgatory", locations) for finder in sys.meta_path
    ):
        return
    file = spec.origin or next(iter(locations or ()), "a module")
    raise ImportError(
        f"{file} is in the way of the package `timer` that the coordinator brings: rename it, or "
        "start Python elsewhere",
        name="timer",
        path=file,
    )
