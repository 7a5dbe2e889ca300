"""The charts over an axis: lines with their bands, intervals beside a limit, spreads, and shares of a whole.

Every series has a colour, a dash pattern and a name, so that no reader depends on colours. Each mark says its
value when it is pointed at.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from ostinato.dashboard.charts.svg import drawing, element, line, path, text

LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 10.0, 24.0
MOST_DOTS = 40
"""Points up to which each gets a dot; more of them are a line."""
STYLES = 6
"""The styles of series in the style sheet."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a chart; `low` and `high` bound each of its points.

    >>> Series(name="reward", points=((0.0, 0.1), (1.0, 0.3))).low
    ()
    """

    name: str
    points: Sequence[Point]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int = 0

    def values(self) -> Iterable[float]:
        return (*(y for _, y in self.points), *self.low, *self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The way from values to positions along one axis.

    >>> Scale(low=0.0, high=2.0, begin=0.0, end=100.0)(0.5)
    25.0
    """

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(self.high, max(self.low, value))
        return self.begin + (self.end - self.begin) * (inside - self.low) / (self.high - self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The frame of a chart: its size, its words, and the values that it must show.

    >>> Frame(label="reward by version").width
    360.0
    """

    label: str
    width: float = 360.0
    height: float = 168.0
    x_words: str = ""
    whole_x: bool = True
    """True when the axis has whole numbers alone, as versions are."""
    must_show: tuple[float, ...] = ()
    marks: Mapping[float, str] = field(default_factory=dict)
    """Vertical lines with what they stand for."""
    limits: Mapping[float, str] = field(default_factory=dict)
    """Horizontal lines with what they stand for."""


def ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Return at most about `most` round values between two values.

    >>> ticks(0.0, 1.0)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    if not low < high:
        return [low]
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= rough * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + place) * step, 10) for place in range(count)]


def words_of(value: float) -> str:
    """Return a number as it stands on an axis, as 12k or −0.25."""
    size = abs(value)
    for limit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if name == 'k' else limit):g}{name}".replace("-", "\u2212")
    return f"{value:.4g}".replace("-", "\u2212")


def lines(series: Sequence[Series], frame: Frame) -> Markup:
    """Return lines over a common axis, each with its band where it has bounds."""
    shown = [one for one in series if one.points]
    if not shown:
        return Markup("")
    xs = [x for one in shown for x, _ in one.points]
    ys = [y for one in shown for y in one.values() if math.isfinite(y)]
    across = _scale(xs, LEFT, frame.width - RIGHT, pad=0.0)
    up = _scale([*ys, *frame.must_show, *frame.limits], frame.height - BOTTOM, TOP, pad=0.06)
    parts = [_axes(across, up, frame)]
    parts += [_limit(up(value), words, frame) for value, words in frame.limits.items()]
    parts += [_mark(across(value), words, frame) for value, words in frame.marks.items()]
    parts += [_band(one, across, up) for one in shown]
    parts += [_curve(one, across, up) for one in shown]
    return drawing(frame.width, frame.height, frame.label, *parts, class_="chart plot")


def _scale(values: Sequence[float], begin: float, end: float, *, pad: float) -> Scale:
    low, high = min(values), max(values)
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = (low - 0.1 * abs(low), high + 0.1 * abs(high)) if abs(low) > 1e-6 else (0.0, 1.0)
    room = pad * (high - low)
    return Scale(low=low - room, high=high + room, begin=begin, end=end)


def _axes(across: Scale, up: Scale, frame: Frame) -> Markup:
    base, right = frame.height - BOTTOM, frame.width - RIGHT
    parts: list[Markup] = []
    for value in ticks(up.low, up.high):
        y = up(value)
        parts.append(line(LEFT, y, right, y, "zero" if value == 0 else "grid"))
        parts.append(text(LEFT - 6, y + 4, words_of(value), "axis", "end"))
    values = ticks(across.low, across.high, 6 if frame.width > 420 else 5, whole=frame.whole_x)
    for place, value in enumerate(values):
        x = across(value)
        parts.append(line(x, base, x, base + 4, "grid"))
        last = place == len(values) - 1 and x > right - 60
        words = words_of(value) + (f" {frame.x_words}" if last else "")
        ends = last and x > right - 24
        parts.append(text(right + 6 if ends else x, base + 16, words, "axis", "end" if ends else "middle"))
    if values and across(values[-1]) <= right - 60:
        parts.append(text(right + 6, base + 16, frame.x_words, "axis", "end"))
    return Markup("").join(parts)


def _limit(y: float, words: str, frame: Frame) -> Markup:
    right = frame.width - RIGHT
    return line(LEFT, y, right, y, "limit") + text(right, y - 4, words, "limit-words", "end")


def _mark(x: float, words: str, frame: Frame) -> Markup:
    drawn = line(x, TOP, x, frame.height - BOTTOM, "mark")
    return element("g", element("title", words), drawn)


def _band(one: Series, across: Scale, up: Scale) -> Markup:
    if len(one.low) != len(one.points) or len(one.points) < 2:
        return Markup("")
    tops = [(across(x), up(high)) for (x, _), high in zip(one.points, one.high, strict=True)]
    floors = [(across(x), up(low)) for (x, _), low in zip(one.points, one.low, strict=True)]
    around = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*tops, *reversed(floors)))
    return element("polygon", points=around, class_=f"band b{one.style % STYLES}")


def _curve(one: Series, across: Scale, up: Scale) -> Markup:
    style = one.style % STYLES
    placed = [(across(x), up(y)) for x, y in one.points]
    parts = [path(placed, f"line l{style}")]
    if len(placed) <= MOST_DOTS:
        bounds = list(zip(one.low, one.high, strict=True)) if len(one.low) == len(placed) else []
        for place, ((x, y), (at, value)) in enumerate(zip(placed, one.points, strict=True)):
            said = f"{one.name}: {words_of(value)} at {words_of(at)}"
            if bounds:
                low, high = bounds[place]
                said += f", between {words_of(low)} and {words_of(high)}"
                if len(placed) == 1:
                    parts.append(line(x, up(low), x, up(high), f"interval l{style}"))
            parts.append(element("circle", element("title", said), cx=x, cy=y, r=2.6, class_=f"dot d{style}"))
    return Markup("").join(parts)


def change(row: Mapping[str, Any], low: float, high: float, limit: float | None = None) -> Markup:
    """Return a change between its bounds on an axis from `low` to `high` with zero, and its limit if any."""
    width, height = 240.0, 26.0
    along = Scale(low=min(low, 0.0), high=max(high, 0.0, 1e-9), begin=8.0, end=width - 8)
    parts = [line(along.begin, 13, along.end, 13, "grid"), line(along(0.0), 3, along(0.0), 23, "zero")]
    if limit is not None:
        parts.append(line(along(limit), 3, along(limit), 23, "limit"))
    parts.append(line(along(row["low"]), 13, along(row["high"]), 13, "interval own"))
    parts.append(element("circle", cx=along(row["estimate"]), cy=13, r=4, class_="estimate own"))
    words = f"{words_of(row['estimate'])}, between {words_of(row['low'])} and {words_of(row['high'])}"
    words += "" if limit is None else f"; the limit is {words_of(limit)}"
    return drawing(width, height, words, *parts)


def spreads(rows: Sequence[Mapping[str, Any]], frame: Frame) -> Markup:
    """Return one spread for each row: `x`, `n`, and the `quantiles` at 5, 25, 50, 75 and 95 %, with the mean
    between its bounds."""
    if not rows:
        return Markup("")
    values = [v for row in rows for v in (*row["quantiles"], row["low"], row["high"])]
    xs = [float(row["x"]) for row in rows]
    across = _scale([min(xs) - 0.6, max(xs) + 0.6], LEFT, frame.width - RIGHT, pad=0.0)
    up = _scale([*values, *frame.must_show], frame.height - BOTTOM, TOP, pad=0.06)
    parts = [_axes(across, up, frame)]
    half = max(1.5, min(9.0, 0.32 * (frame.width - LEFT - RIGHT) / max(1.0, max(xs) - min(xs) + 1)))
    for row in rows:
        x = across(float(row["x"]))
        a, b, middle, c, d = (up(value) for value in row["quantiles"])
        said = f"{words_of(float(row['x']))}: median {words_of(row['quantiles'][2])}, mean "
        said += f"{row['mean']:.3f} between {row['low']:.3f} and {row['high']:.3f}, {row['n']} sessions"
        parts.append(
            element(
                "g",
                element("title", said),
                line(x, a, x, d, "whisker"),
                element("rect", x=x - half, y=c, width=2 * half, height=max(0.8, b - c), class_="box"),
                line(x - half, middle, x + half, middle, "median"),
                line(x, up(row["low"]), x, up(row["high"]), "interval own"),
                element("circle", cx=x, cy=up(row["mean"]), r=2.8, class_="estimate own"),
            )
        )
    return drawing(frame.width, frame.height, frame.label, *parts, class_="chart plot")


def shares(rows: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """Return one bar of (name, count, class) parts that add up to the whole."""
    whole = sum(count for _, count, _ in rows)
    if whole <= 0:
        return Markup("")
    width, at, parts = 720.0, 0.0, []
    for name, count, class_ in rows:
        size = width * count / whole
        if size > 0:
            said = element("title", f"{name}: {words_of(count)}, {count / whole:.1%}")
            parts.append(
                element(
                    "rect", said, x=at, y=0, width=max(0.5, size - 1), height=16, class_=f"share {class_}"
                )
            )
        at += size
    return drawing(width, 16, label, *parts, class_="chart bar-of-all")
