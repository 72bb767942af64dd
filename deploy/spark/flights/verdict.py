"""Verdict of a run: its checks, and the exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

INTERRUPTED = 130
"""Exit status after Ctrl-C, as of a shell."""


def tell(checks: Sequence[tuple[str, bool]], details: Iterable[str] = ()) -> int:
    """Print each check, then details of failures; returns 0 if all hold, else 1."""
    print()
    for text, holds in checks:
        print(f"{'ok ' if holds else 'NOT'}  {text}")
    for line in details:
        print(f"     {line}")
    good = all(holds for _, holds in checks)
    print("\nVerdict:", "exactly right." if good else "WRONG.")
    return 0 if good else 1


def exit_status(main: Callable[[], int]) -> int:
    """Run a part of the demo; returns its exit status, or 130 after Ctrl-C."""
    try:
        return main()
    except KeyboardInterrupt:
        print("\nStopped by Ctrl-C.")
        return INTERRUPTED
