"""Live view of members, owners, progress and events; plain lines without a terminal.

Owners have the colours of the picture. Nothing is said by colour alone, and `NO_COLOR` turns it
off.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flights.history import SIGKILL, SIGSTOP
from flights.picture import PALETTE
from flights.watching import Happening, Member, View

BAR_MIN, BAR_MAX = 5, 30
OWNER_MIN = 26
OTHERS = len("partition") + 13
"""Width of the first column, and of all borders."""
LINES_OF_TABLE = 7
"""Lines of the view, but for partitions and events."""
SHOWN = 8
DONE, DEAD, NOBODY = "█", "▒", "░"
"""Signs of the rows that are done, by what became of the owner of the partition."""
ALARM = "bold red"
ALARMS = (SIGKILL, SIGSTOP, "evicted")


class Screen:
    """Shows views as they come. Use it as a context manager.

    Args:
        ends: number of rows of each partition when all is done.
        done: past participle for the progress line, such as "counted".
        console: to write to; a terminal gets the live view.
    """

    def __init__(self, ends: dict[int, int], done: str, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._ends = ends
        self._done = done
        self._live = Live(console=self._console, auto_refresh=False)
        self._colours: dict[str, str] = {}
        self._owner_width = OWNER_MIN
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
        names = {p: self._owner(p, view) for p in self._ends}
        # It grows only, so that the table does not jump.
        self._owner_width = max(self._owner_width, *(len(name) for name in names.values()))
        rows = {p: f"{view.offsets.get(p, 0):,} / {end:,}" for p, end in self._ends.items()}
        others = OTHERS + self._owner_width + max(map(len, rows.values()))
        length = min(max(self._console.width - others, BAR_MIN), BAR_MAX)
        title = f"{view.at_s:.1f} s, generation {view.generation}, {view.state}"
        table = Table(title=title, title_justify="left", expand=False)
        table.add_column("partition", justify="right", no_wrap=True)
        table.add_column("owner", min_width=self._owner_width, no_wrap=True)
        table.add_column("progress", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
        for partition in self._ends:
            bar = self._bar(partition, view, length)
            table.add_row(str(partition), names[partition], bar, rows[partition])
        members = Text("members: ").append(
            Text(", ").join(self._name(member, view) for member in view.members.values())
            if view.members
            else "none"
        )
        room = self._console.height - len(self._ends) - LINES_OF_TABLE
        lines = [
            Text(f"{h.at_s:6.1f} s  {h.text}", style=ALARM if h.kind in ALARMS else "")
            for h in happenings[-min(max(room, 1), SHOWN) :]
        ]
        return Group(members, table, *lines)

    def _owner(self, partition: int, view: View) -> Text:
        owner = view.owners.get(partition)
        if owner is not None:
            return self._name(owner, view)
        is_needed = view.generation and view.offsets.get(partition, 0) < self._ends[partition]
        return Text("nobody", style=ALARM) if is_needed else Text("–", style="dim")

    def _name(self, member: Member, view: View) -> Text:
        if member.killed_at_s is not None:
            since = view.at_s - member.killed_at_s
            what = "† killed" if member.signal == SIGKILL else "‖ stopped"
            return Text(f"{member.label} {what} {since:.0f} s ago", style=ALARM)
        return Text(member.label, style=self._colours.get(member.label, ""))

    def _bar(self, partition: int, view: View, length: int) -> Text:
        end, owner = self._ends[partition], view.owners.get(partition)
        filled = round(length * view.offsets.get(partition, 0) / end) if end else length
        if owner is None:
            sign, style = NOBODY, "dim"
        else:
            sign = DONE if owner.killed_at_s is None else DEAD
            style = self._colours[owner.label]
        return Text.assemble((sign * filled, style), ("·" * (length - filled), "dim"))
