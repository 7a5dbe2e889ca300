"""The pictures of a trial and of what is watched beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ostinato.dashboard.charts.plot import Frame, Scale, Series, lines, spreads
from ostinato.dashboard.charts.svg import drawing, element, text

FARTHEST = 1.0
"""The change beyond which a band is cut: early looks know nothing, and would flatten the later ones."""


def sequence(looks: Sequence[Mapping[str, Any]], terms: Mapping[str, Any]) -> Markup:
    """Return the confidence sequence: the estimate with its band at every look, and the bounds of harm."""
    told = [look for look in looks if look["reward"] is not None]
    near = _nearest(told)
    points = [(float(look["sessions"]), look["reward"]["estimate"]) for look in told]
    main = Series(
        name="change of the reward",
        points=points,
        low=[max(-near, look["reward"]["low"]) for look in told],
        high=[min(near, look["reward"]["high"]) for look in told],
    )
    harms = [
        Series(
            name=f"{side} bound of a roll-back",
            points=[(float(n), bound) for n, bound in _bounds(told, side) if abs(bound) < near],
            style=5,
        )
        for side in ("low", "high")
    ]
    over = told[-1]["sessions"] >= terms["horizon"]
    limits = {-float(terms["margin"]): "the loss that would be too much"} if terms.get("margin") else {}
    frame = Frame(
        label=f"the change of the reward after each of {len(told)} looks, with its band",
        width=760.0,
        height=300.0,
        x_words="sessions",
        must_show=(0.0,),
        limits=limits,
        marks={float(terms["horizon"]): "the end of the trial"} if over else {},
    )
    return lines([*harms, main], frame)


def _bounds(told: Sequence[Mapping[str, Any]], side: str) -> list[tuple[int, float]]:
    return [(look["sessions"], look["harming"][side]) for look in told]


def _nearest(told: Sequence[Mapping[str, Any]]) -> float:
    """Return the change up to which the chart reaches: four times the last band's half, at most 1."""
    last = told[-1]["reward"]
    reach = max(abs(last["low"]), abs(last["high"]), abs(last["estimate"]))
    return min(FARTHEST, 4 * reach) if reach < FARTHEST else FARTHEST


def progress(done: float, whole: float) -> Markup:
    """Return how much of a trial is over, as a bar."""
    width = 300.0
    along = Scale(low=0.0, high=max(whole, 1.0), begin=0.0, end=width)
    label = f"{done / max(whole, 1.0):.0%} of the trial is over"
    return drawing(
        width,
        10,
        label,
        element("rect", x=0, y=1, width=width, height=8, rx=4, class_="trough"),
        element("rect", x=0, y=1, width=max(2.0, along(done)), height=8, rx=4, class_="filled"),
        class_="chart progress",
    )


def part_chart(part: Mapping[str, Any]) -> Markup:
    """Return the spread of one part of the reward over versions."""
    frame = Frame(label=f"{part['name']} by version", x_words="version", must_show=(0.0,))
    return spreads(part["spreads"], frame)


def behaviour_chart(behaviour: Mapping[str, Any]) -> Markup:
    """Return one behaviour over time, in groups of sessions that follow each other."""
    points = behaviour["points"]
    newest = points[-1]["at"]
    series = Series(
        name=str(behaviour["name"]),
        points=[((one["at"] - newest) / 86_400, one["mean"]) for one in points],
        low=[one["low"] for one in points],
        high=[one["high"] for one in points],
    )
    drift = behaviour["drift"]
    marks = {(drift["at"] - newest) / 86_400: "the change began"} if drift else {}
    frame = Frame(
        label=f"{behaviour['name']} over time", x_words="days", whole_x=False, must_show=(0.0,), marks=marks
    )
    return lines([series], frame)


def truth_chart(cycles: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the reward of each cycle beside the hidden satisfaction, with a mark at each promotion."""
    read = {"reward": "reward of the sessions", "satisfaction": "hidden satisfaction with the champion"}
    series = [
        Series(
            name=words,
            points=[(one["hours"], one[name]) for one in cycles if one[name] is not None],
            style=place,
        )
        for place, (name, words) in enumerate(read.items())
    ]
    marks = {one["hours"]: "promoted" for one in cycles if one["promoted"]}
    frame = Frame(
        label="reward and hidden satisfaction by cycle",
        x_words="hours",
        whole_x=False,
        must_show=(0.0,),
        marks=marks,
    )
    return lines([one for one in series if one.points], frame)


def chain_chart(chain: Sequence[Mapping[str, Any]]) -> Markup:
    """Return the bytes of each version as bars; anchors, which are whole, stand out."""
    width, height, left, base = 760.0, 150.0, 8.0, 128.0
    most = max(1, *(link["bytes"] for link in chain))
    step = min(60.0, (width - 2 * left) / len(chain))
    up = Scale(low=0.0, high=float(most), begin=base, end=14.0)
    parts = []
    for place, link in enumerate(chain):
        top = up(float(link["bytes"]))
        said = element("title", f"version {link['version']}: {link['kind']} of {link['bytes']:,} bytes")
        x = left + step * place
        kind = "anchor" if link["kind"] == "anchor" else "delta"
        size = {"width": max(1.0, step * 0.7), "height": max(1.0, base - top)}
        parts.append(element("rect", said, x=x, y=top, class_=kind, **size))
        if step > 18 or place % max(1, round(28 / step)) == 0:
            parts.append(text(x + step * 0.35, base + 15, str(link["version"]), "axis", "middle"))
    label = f"the published bytes of {len(chain)} versions, {most:,} at most"
    return drawing(left + step * len(chain) + left, height, label, *parts, class_="chart chain")
