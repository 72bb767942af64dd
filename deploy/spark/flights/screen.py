"""Live view of members, owners, progress and events; plain lines without a terminal."""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flights.watching import Happening, View

BAR = 30
SHOWN = 8


class Screen:
    """Shows views as they come. Use it as a context manager.

    Args:
        ends: number of rows of each partition when all is done.
        done: past participle for the progress line, such as "counted".
    """

    def __init__(self, ends: dict[int, int], done: str) -> None:
        self._console = Console()
        self._ends = ends
        self._done = done
        self._live = Live(console=self._console, auto_refresh=False)
        self._shown = 0
        self._last_percent = -1

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._console.is_terminal:
            self._live.__exit__(None, None, None)

    def show(self, view: View, happenings: list[Happening]) -> None:
        if self._console.is_terminal:
            self._live.update(self._picture(view, happenings), refresh=True)
            return
        for happening in happenings[self._shown :]:
            print(f"{happening.at_s:6.1f} s  {happening.text}", flush=True)
        self._shown = len(happenings)
        percent = int(100 * self.progress(view))
        if percent // 10 > self._last_percent // 10:
            print(f"{view.at_s:6.1f} s  {percent} % of the flights {self._done}", flush=True)
            self._last_percent = percent

    def progress(self, view: View) -> float:
        """Fraction of all rows that is committed."""
        return sum(view.offsets.values()) / sum(self._ends.values())

    def _picture(self, view: View, happenings: list[Happening]) -> Group:
        table = Table(title=f"generation {view.generation}, {view.state}", expand=False)
        for column in ("partition", "owner", "progress", "rows"):
            table.add_column(column)
        for partition, end in self._ends.items():
            done = view.offsets.get(partition, 0)
            filled = round(BAR * done / end) if end else BAR
            bar = "█" * filled + "·" * (BAR - filled)
            owner = view.owners.get(partition, "–")
            table.add_row(str(partition), owner, bar, f"{done:,} / {end:,}")
        members = Text("members: " + (", ".join(view.members) or "none"))
        lines = [Text(f"{h.at_s:6.1f} s  {h.text}") for h in happenings[-SHOWN:]]
        return Group(members, table, *lines)
