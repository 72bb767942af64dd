"""Four charts of the statistics, as SVG. Titles are computed from the numbers.

Equal statistics give equal bytes. The colours are Okabe and Ito's, which colour-blind readers can
tell apart, and no chart needs colour to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from flights.delays.bands import PLANE_AGE, PRECIPITATION, UNKNOWN, VISIBILITY, WIND, Band
from flights.delays.groupings import LATE_MINUTES

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#999999"
ENOUGH = 1_000
"""Flights below which a group is drawn in grey or not at all, and named in no title."""

LATE = f"flights that left more than\n{LATE_MINUTES} minutes late, %"
STYLE = {
    "svg.hashsalt": "flights",
    "svg.fonttype": "none",  # Text stays text: small files that can be searched.
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
}
Tables = Mapping[str, pd.DataFrame]


def draw(tables: Tables, folder: Path) -> dict[str, str]:
    """Write the charts into a folder; returns their titles by name."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        return {name: chart(tables, folder / f"{name}.svg") for name, chart in CHARTS.items()}


def by_hour(tables: Tables, path: Path) -> str:
    hours = tables["hour"].sort_values("hour")
    hours = hours[hours["flights"] >= ENOUGH]
    worst, best = _extremes(hours)
    title = (
        f"Of the flights due from {_hour(worst)}, {_percent(worst)} leave late; "
        f"of those from {_hour(best)}, {_percent(best)}"
    )
    figure, (top, bottom) = _figure(title, 2, 1, (8, 5.6), sharex=True)
    _bars(top, hours["hour"], hours)
    top.set_ylabel(LATE)
    for measure, colour, mark, label in (
        ("p90_delay", VERMILION, "s", "one in ten flights is later (p90)"),
        ("mean_delay", GREY, "^", "mean"),
        ("p50_delay", BLUE, "o", "one in two is later (median)"),
    ):
        bottom.plot(hours["hour"], hours[measure], color=colour, marker=mark, ms=4, label=label)
    bottom.set_ylabel("delay at departure, minutes")
    bottom.set_xlabel("hour of the scheduled departure, local time")
    bottom.set_xticks(hours["hour"])
    bottom.grid(axis="y")
    bottom.legend(frameon=False)
    _save(figure, path)
    return title


def by_carrier(tables: Tables, path: Path) -> str:
    carriers = tables["carrier"].sort_values("late_share")
    worst, best = _extremes(carriers)
    title = (
        f"{worst['carrier_name']} leaves late most often ({_percent(worst)}), "
        f"{best['carrier_name']} least ({_percent(best)})"
    )
    figure, (axes,) = _figure(title, 1, 1, (8, 5.2))
    axes.barh(carriers["carrier_name"], 100 * carriers["late_share"], color=_colours(carriers))
    for place, (_, carrier) in enumerate(carriers.iterrows()):
        text = f"{_percent(carrier)} of {carrier['flights'] - carrier['cancelled']:,}"
        axes.annotate(text, (100 * carrier["late_share"], place), (4, 0), va="center",
                      textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_xlabel(LATE.replace("\n", " "))
    axes.text(1, 0.02, f"grey: fewer than {ENOUGH:,} flights", transform=axes.transAxes,
              ha="right", fontsize=8)  # fmt: skip
    axes.margins(x=0.18, y=0.01)
    axes.grid(axis="x")
    _save(figure, path)
    return title


def by_weather(tables: Tables, path: Path) -> str:
    bands = {"wind": WIND, "visibility": VISIBILITY, "precipitation": PRECIPITATION}
    classes = {name: _in_order(tables[name], band) for name, band in bands.items()}
    extremes = {name: _extremes(known) for name, (known, _) in classes.items()}
    widest = max(
        extremes, key=lambda n: extremes[n][0]["late_share"] - extremes[n][1]["late_share"]
    )
    band, (worst, best) = bands[widest], extremes[widest]
    title = (
        f"The widest gap is in {widest} ({band.unit}): {_percent(worst)} leave late at "
        f"“{worst[band.name]}”, {_percent(best)} at “{best[band.name]}”"
    )
    figure, panels = _figure(title, 1, 3, (9.6, 3.6), sharey=True)
    for axes, name in zip(panels, bands, strict=True):
        known, _ = classes[name]
        _bars(axes, known[bands[name].name], known, labelled=True)
        axes.set_xlabel(f"{name}, {bands[name].unit}")
        axes.tick_params(axis="x", labelsize=8)
    panels[0].set_ylabel(LATE)
    _save(figure, path)
    return title


def by_plane_age(tables: Tables, path: Path) -> str:
    known, unknown = _in_order(tables["plane_age"], PLANE_AGE)
    worst, best = _extremes(known)
    title = (
        f"Aircraft of {worst[PLANE_AGE.name]} years leave late most often ({_percent(worst)}), "
        f"those of {best[PLANE_AGE.name]} least ({_percent(best)})"
    )
    figure, (axes,) = _figure(title, 1, 1, (8, 3.8))
    shown = pd.concat([known, unknown])
    _bars(axes, shown[PLANE_AGE.name], shown, labelled=True)
    axes.set_xlabel("age of the aircraft, years since it was built")
    axes.set_ylabel(LATE)
    _save(figure, path)
    return title


CHARTS: dict[str, Callable[[Tables, Path], str]] = {
    "by_hour": by_hour,
    "by_carrier": by_carrier,
    "by_weather": by_weather,
    "by_plane_age": by_plane_age,
}


# --- Inside ---


def _extremes(groups: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The latest and the most punctual of the groups with enough flights."""
    enough = groups[groups["flights"] >= ENOUGH]
    enough = groups if enough.empty else enough
    return enough.loc[enough["late_share"].idxmax()], enough.loc[enough["late_share"].idxmin()]


def _in_order(groups: pd.DataFrame, band: Band) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Groups of known class in the order of the band, and groups of unknown class."""
    place = {label: number for number, label in enumerate(band.labels)}
    known = groups[groups[band.name] != UNKNOWN]
    known = known.sort_values(band.name, key=lambda labels: labels.map(place))
    return known, groups[groups[band.name] == UNKNOWN]


def _percent(group: pd.Series) -> str:
    return f"{100 * group['late_share']:.0f} %"


def _hour(group: pd.Series) -> str:
    return f"{group['hour']:.0f} to {group['hour'] + 1:.0f} o’clock"


def _colours(groups: pd.DataFrame) -> list[str]:
    return [BLUE if flights >= ENOUGH else GREY for flights in groups["flights"]]


def _figure(title: str, rows: int, columns: int, size: tuple[float, float], **more: Any) -> Any:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **more
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure, axes.flatten()


def _bars(axes: Any, places: pd.Series, groups: pd.DataFrame, *, labelled: bool = False) -> None:
    bars = axes.bar(places, 100 * groups["late_share"], color=_colours(groups))
    if labelled:
        axes.bar_label(bars, [_percent(group) for _, group in groups.iterrows()], fontsize=8)
    axes.grid(axis="y")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
