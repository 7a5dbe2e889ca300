"""The pictures of training: figures by step of several runs, a group's rewards, and the account as a bar."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ostinato.dashboard.charts.plot import Frame, Scale, Series, lines, shares, words_of
from ostinato.dashboard.charts.svg import drawing, element, line

Step = Mapping[str, Any]
CLASSES = 8
"""The classes of parts of a whole in the style sheet."""


def training_charts(
    runs: Sequence[Mapping[str, Any]], measured: Sequence[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return a chart for each figure that any run has, the runs drawn over each other."""
    charts = [
        _chart("Reward of a group", runs, lambda step: step["reward"]),
        _chart("Share of sessions that solved their task", runs, lambda step: step["solved"], (0.0, 1.0)),
        _chart("Best reward of a group, mean", runs, lambda step: _plain(step["best"])),
        _chart("Staleness of the oldest token, versions", runs, lambda step: _plain(step["staleness"])),
    ]
    for each in measured:
        limits = (0.0, 1.0) if each["as"] == "share" else ()
        read = _reader(each["name"])
        charts.append(_chart(each["words"], runs, read, limits))
    return [chart for chart in charts if chart is not None]


def _reader(name: str) -> Callable[[Step], Any]:
    return lambda step: _plain(step["figures"].get(name))


def _plain(value: float | None) -> Mapping[str, float] | None:
    return None if value is None else {"mean": value}


def _chart(
    title: str,
    runs: Sequence[Mapping[str, Any]],
    read: Callable[[Step], Mapping[str, float] | None],
    must_show: tuple[float, ...] = (),
) -> dict[str, Any] | None:
    series, last = [], None
    for place, run in enumerate(runs):
        told = [(step["version"], value) for step in run["steps"] if (value := read(step)) is not None]
        bounded = all("low" in value for _, value in told)
        series.append(
            Series(
                name=str(run["name"]),
                points=[(float(version), value["mean"]) for version, value in told],
                low=[value["low"] for _, value in told] if bounded else (),
                high=[value["high"] for _, value in told] if bounded else (),
                style=place,
            )
        )
        if told and place == 0:
            last = words_of(round(told[-1][1]["mean"], 4))
    if not any(one.points for one in series):
        return None
    frame = Frame(label=f"{title}, by version", x_words="version", must_show=must_show)
    return {"title": title, "last": last, "drawn": lines(series, frame), "note": None}


def strip(rewards: Sequence[float]) -> Markup:
    """Return the rewards of a group as dots on the axis from the lowest, at most −1, to the highest."""
    if not rewards:
        return Markup("–")
    width = 180.0
    along = Scale(low=min(-1.0, *rewards), high=max(1.0, *rewards), begin=8.0, end=width - 8)
    parts = [line(along.begin, 11, along.end, 11, "grid"), line(along(0.0), 5, along(0.0), 17, "zero")]
    for reward in rewards:
        said = element("title", f"{reward:+.3f}")
        kind = "up" if reward > 0 else "down"
        parts.append(element("circle", said, cx=along(reward), cy=11, r=4, class_=f"bead {kind}"))
    span = f"from {min(rewards):+.2f} to {max(rewards):+.2f}"
    return drawing(width, 22, f"rewards of {len(rewards)} sessions, {span}", *parts)


def account_bar(rows: Sequence[Mapping[str, Any]], name: str) -> Markup:
    """Return the account as one bar whose parts add up to all."""
    parts = [
        (str(row[name]).replace("_", " "), float(row["count"]), f"share-{place % CLASSES}")
        for place, row in enumerate(rows)
    ]
    return shares(parts, "the parts of the account")
