"""The pictures of one session: its turns as a graph, and what survived of an edit over time."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ostinato.dashboard.charts.svg import drawing, element, line, link, path, text

STEP, LANE, MARGIN = 26.0, 30.0, 22.0
WEEK_S = 604_800.0
TICKS = ((0.0, "0"), (60.0, "1 min"), (3_600.0, "1 h"), (86_400.0, "1 d"), (WEEK_S, "7 d"))
WIDTH, HEIGHT, LEFT = 360.0, 92.0, 34.0


def message_graph(turns: Sequence[Mapping[str, Any]], shown: Sequence[int], address: str) -> Markup:
    """Return the turns in the order of time, one lane for each segment, with a line from what each continues.

    `address` is the page's own, to which `#turn-N` and `&from=N` are added.
    """
    lanes = {segment: lane for lane, segment in enumerate(sorted({turn["segment"] for turn in turns}))}
    place = {
        turn["number"]: (MARGIN + STEP * order, MARGIN + LANE * lanes[turn["segment"]])
        for order, turn in enumerate(turns)
    }
    parts: list[Markup] = []
    for turn in turns:
        if turn["base"] in place:
            parts.append(_edge(place[turn["base"]], place[turn["number"]]))
    visible = set(shown)
    for turn in turns:
        x, y = place[turn["number"]]
        where = "" if turn["number"] in visible else f"{address}&from={turn['number']}"
        label = f"turn {turn['number']}, segment {turn['segment']}, {turn['kind']}, {turn['state'] or 'open'}"
        classes = f"node {'seen' if turn['number'] in visible else 'away'} kind-{turn['kind']}"
        if turn["untrainable"] or turn["broken"]:
            classes += " wrong"
        dot = element("circle", cx=x, cy=y, r=9, class_=classes)
        number = text(x, y + 3.5, str(turn["number"]), "node-number", "middle")
        parts.append(link(f"{where}#turn-{turn['number']}", label, dot, number))
    width = 2 * MARGIN + STEP * max(0, len(turns) - 1)
    height = 2 * MARGIN + LANE * max(0, len(lanes) - 1)
    label = (
        f"{len(turns)} turns in {len(lanes)} segments; a line leads from each turn to the one it continues"
    )
    return drawing(width, height, label, *parts, class_="graph")


def _edge(begin: tuple[float, float], end: tuple[float, float]) -> Markup:
    (x1, y1), (x2, y2) = begin, end
    if y1 == y2:
        return line(x1, y1, x2, y2, "edge")
    bend = (x1 + x2) / 2
    curve = f"M {x1:g} {y1:g} C {bend:g} {y1:g} {bend:g} {y2:g} {x2:g} {y2:g}"
    return element("path", d=curve, class_="edge fork")


def survival(edit: Mapping[str, Any]) -> Markup:
    """Return the share of an edit that is left, from its proposal to seven days, on a logarithmic axis."""
    base, top = HEIGHT - 22, 10.0
    parts = [line(LEFT, y, WIDTH - 8, y, "grid") for y in (top, (top + base) / 2, base)]
    parts += [text(LEFT - 6, y + 4, words, "axis", "end") for y, words in ((top, "100%"), (base, "0%"))]
    parts += [text(_x(seconds), HEIGHT - 6, words, "axis", "middle") for seconds, words in TICKS]
    points = [(_x(one["delay"]), base - (base - top) * one["rate"]) for one in edit["survival"]]
    steps = [(points[0][0], points[0][1])] if points else []
    for (_, y1), (x2, y2) in itertools.pairwise(points):
        steps += [(x2, y1), (x2, y2)]
    parts.append(path(steps, "curve"))
    parts += [element("circle", cx=x, cy=y, r=3, class_="point") for x, y in points]
    for moment in edit["moments"]:
        if moment["what"] in {"commit", "revert", "superseded"} or moment["signal"]:
            x = _x(moment["delay"])
            parts.append(line(x, top - 4, x, base, f"mark mark-{moment['what'].split()[-1]}"))
    left = f"{edit['survival'][-1]['rate']:.0%} is left" if points else "nothing was measured"
    return drawing(WIDTH, HEIGHT, f"survival of the edit over time: {left}; {edit['fate']}", *parts)


def _x(seconds: float) -> float:
    share = math.log1p(max(0.0, min(seconds, WEEK_S))) / math.log1p(WEEK_S)
    return LEFT + (WIDTH - 8 - LEFT - 14) * share + 4
