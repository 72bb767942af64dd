"""Picture of who worked on which partition, and when: a panel for each group.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, and bars carry names, so
that none is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flights.history import History, IdleSpan

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
ALARM = "#A83200"
STYLE = {
    "svg.hashsalt": "flights",
    "svg.fonttype": "none",  # Text stays text: small files that can be searched.
    "font.size": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
NAMED_S = 0.07
"""Part of the axis from which on a bar carries its owner's name."""
HEIGHT = 0.8


def lengths(idle_spans: Sequence[IdleSpan]) -> str:
    """How long partitions stood idle, in seconds: the shortest and the longest."""
    if not idle_spans:
        return "none"
    found = sorted(span.length_s for span in idle_spans)
    what = "1 partition" if len(found) == 1 else f"{len(found)} partitions"
    return f"{what}: {found[0]:.1f} to {found[-1]:.1f}"


def draw(
    path: Path,
    title: str,
    histories: Mapping[str, History],
    steps: Sequence[tuple[float, str]],
) -> None:
    """Write the picture as SVG.

    Args:
        histories: by the titles of their panels. steps: of the demo, with their times in seconds.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    owners = dict.fromkeys(owner for history in histories.values() for owner in history.owners)
    colours = dict(zip(owners, PALETTE * 2, strict=False))
    end_s = max(stint.end_s for history in histories.values() for stint in history.stints)
    with mpl.rc_context(STYLE):
        figure, panels = plt.subplots(
            len(histories), 1, sharex=True, squeeze=False, layout="constrained",
            figsize=(10, 1.0 + 3.0 * len(histories) + 0.17 * len(steps)),
        )  # fmt: skip
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        for axes, (name, history) in zip(panels[:, 0], histories.items(), strict=True):
            axes.set_title(f"{name}, by partition", pad=20)
            axes.set_xlim(0, end_s)
            _panel(axes, history, colours, end_s)
            _numbers(axes, [at_s for at_s, _ in steps])
        told = [f"{n}: at {at_s:.0f} s {text}" for n, (at_s, text) in enumerate(steps, start=1)]
        panels[-1, 0].set_xlabel("\n".join(["seconds", *told]), ha="left", x=0)
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def _panel(axes: Any, history: History, colours: Mapping[str, str], end_s: float) -> None:
    for stint in history.stints:
        length_s = stint.end_s - stint.begin_s
        _bar(axes, stint.partition, stint.begin_s, length_s, color=colours[stint.owner])
        if length_s > NAMED_S * end_s:
            ink = "white" if colours[stint.owner] == PALETTE[0] else "black"
            at_s = stint.begin_s + 0.005 * end_s
            axes.text(at_s, stint.partition, stint.owner, va="center", fontsize=7, color=ink)
    for span in history.idle_spans:
        edge = ALARM if span.strike else "#767676"
        _bar(axes, span.partition, span.begin_s, span.length_s, facecolor="white", edgecolor=edge,
             hatch="////", linewidth=0.5)  # fmt: skip
    for at_s, signal in _signals(history.idle_spans):
        axes.axvline(at_s, color=ALARM, linewidth=1.5)
        axes.annotate(signal, (at_s, 1), xycoords=("data", "axes fraction"), color=ALARM,
                      ha="right", va="bottom", fontsize=7, xytext=(-2, 9),
                      textcoords="offset points")  # fmt: skip
    refused = history.refusals
    axes.plot([note.at_s for note in refused], [note.partition for note in refused],
              "x", color=ALARM, label="a batch is refused")  # fmt: skip
    axes.set_yticks(sorted({stint.partition for stint in history.stints}))
    axes.invert_yaxis()


def _bar(axes: Any, partition: int, begin_s: float, length_s: float, **paint: Any) -> None:
    axes.broken_barh([(begin_s, length_s)], (partition - HEIGHT / 2, HEIGHT), **paint)


def _signals(idle_spans: Iterable[IdleSpan]) -> set[tuple[float, str]]:
    return {
        (span.strike.at_s, span.strike.signal) for span in idle_spans if span.strike is not None
    }


def _numbers(axes: Any, times: Iterable[float]) -> None:
    for number, at_s in enumerate(times, start=1):
        axes.axvline(at_s, color="#333333", linewidth=0.7, linestyle=":")
        axes.annotate(str(number), (at_s, 1), xycoords=("data", "axes fraction"), ha="center",
                      va="bottom", fontsize=7)  # fmt: skip
