"""Live view of members, owners, progress and events; plain lines without a terminal.

Owners have the colours of the picture. Nothing is said by colour alone, and `NO_COLOR` turns it
off.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flights.picture import PALETTE
from flights.watching import Happening, Member, View

BAR, OWNER = 30, 26
SHOWN = 8
DONE, DEAD, NOBODY = "█", "▒", "░"
"""Signs of the rows that are done, by what became of the owner of the partition."""
ALARM = "bold red"


class Screen:
    """Shows views as they come. Use it as a context manager.

    Args:
        ends: number of rows of each partition when all is done.
        done: past participle for the progress line, such as "counted".
        console: to write to; a terminal gets the live view.
    """

    def __init__(self, ends: dict[int, int], done: str, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._ends = ends
        self._done = done
        self._live = Live(console=self._console, auto_refresh=False)
        self._colours: dict[str, str] = {}
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
            self._print(happening.at_s, happening.text)
        self._shown = len(happenings)
        percent = int(100 * self.progress(view))
        if percent // 10 > self._last_percent // 10:
            self._print(view.at_s, f"{percent} % of the flights {self._done}")
            self._last_percent = percent

    def progress(self, view: View) -> float:
        """Fraction of all rows that is committed."""
        return sum(view.offsets.values()) / sum(self._ends.values())

    def _print(self, at_s: float, text: str) -> None:
        print(f"{at_s:6.1f} s  {text}", flush=True)

    def _picture(self, view: View, happenings: list[Happening]) -> Group:
        for owner in dict.fromkeys(member.label for member in view.owners.values()):
            self._colours.setdefault(owner, PALETTE[len(self._colours) % len(PALETTE)][0])
        title = f"{view.at_s:.1f} s, generation {view.generation}, {view.state}"
        table = Table(title=title, title_justify="left", expand=False)
        table.add_column("partition", justify="right")
        table.add_column("owner", min_width=OWNER)
        table.add_column("progress")
        table.add_column("rows", justify="right")
        for partition, end in self._ends.items():
            done = view.offsets.get(partition, 0)
            owner = view.owners.get(partition)
            needs_owner = bool(view.generation) and done < end
            name = self._name(owner, view) if owner else _nobody(needs_owner)
            bar = self._bar(owner, round(BAR * done / end) if end else BAR)
            table.add_row(str(partition), name, bar, f"{done:,} / {end:,}")
        members = Text("members: ").append(
            Text(", ").join(self._name(member, view) for member in view.members.values())
            if view.members
            else "none"
        )
        lines = [
            Text(f"{h.at_s:6.1f} s  {h.text}", style=ALARM if h.kind in ("kill", "evicted") else "")
            for h in happenings[-SHOWN:]
        ]
        return Group(members, table, *lines)

    def _name(self, member: Member, view: View) -> Text:
        if member.killed_at_s is not None:
            since = view.at_s - member.killed_at_s
            return Text(f"{member.label} † killed {since:.0f} s ago", style=ALARM)
        return Text(member.label, style=self._colours.get(member.label, ""))

    def _bar(self, owner: Member | None, filled: int) -> Text:
        if owner is None:
            sign, style = NOBODY, "dim"
        else:
            sign = DONE if owner.killed_at_s is None else DEAD
            style = self._colours[owner.label]
        return Text.assemble((sign * filled, style), ("·" * (BAR - filled), "dim"))


def _nobody(is_needed: bool) -> Text:
    return Text("nobody", style=ALARM) if is_needed else Text("–", style="dim")
