"""HTML from templates: everything is escaped, and no page holds a script or a style of its own."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ostinato.dashboard.charts.experiment import (
    behaviour_chart,
    chain_chart,
    part_chart,
    progress,
    sequence,
    truth_chart,
)
from ostinato.dashboard.charts.plot import change
from ostinato.dashboard.charts.session import message_graph, survival
from ostinato.dashboard.charts.training import account_bar, strip, training_charts
from ostinato.dashboard.charts.versions import interval, lineage

HERE = Path(__file__).parent
STATIC = HERE / "static"
STEPS = ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h"), (90 * 86_400, 86_400, "d"))
DATES = (0.0, 253_402_300_799.0)
"""The seconds that a date can be made of."""
CHARTS: tuple[Callable[..., Any], ...] = (
    account_bar,
    behaviour_chart,
    chain_chart,
    change,
    interval,
    lineage,
    message_graph,
    part_chart,
    progress,
    sequence,
    strip,
    survival,
    training_charts,
    truth_chart,
)
"""The charts that templates may draw, by their names."""


def environment() -> Environment:
    """Return the templates with their filters."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": ago,
        "moment": moment,
        "num": num,
        "seconds": seconds,
        "signed": signed,
        "percent": percent,
        "prob": prob,
    }
    made.globals |= {"address": address, "version_name": version_name}
    made.globals |= {chart.__name__: chart for chart in CHARTS}
    return made


def address(page: str, /, **fields: Any) -> str:
    """Return the address of a page; fields without a value are left out.

    >>> address("/session", id="a/b#c", turn=3, colour=None)
    '/session?id=a%2Fb%23c&turn=3'
    """
    given: Mapping[str, str] = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return f"{page}?{urlencode(given)}" if given else page


def version_name(version: int, known: Collection[int], words: str = "version ") -> Markup:
    """Return the name of a version, with a link where it is `known` and so has a page.

    >>> version_name(7, {7}), version_name(5, {7}), version_name(-1, {7})
    (Markup('<a href="/version?version=7">version 7</a>'), Markup('version 5'), Markup('the teacher'))
    """
    if version < 0:
        return Markup("the teacher")
    if version not in known:
        return Markup("{}{}").format(words, version)
    return Markup('<a href="{}">{}{}</a>').format(address("/version", version=version), words, version)


def ago(at: float | None, now: float | None = None) -> Markup:
    """Return how long ago a time was, with the time itself for those who point at it."""
    if at is None or not DATES[0] <= at <= DATES[1]:
        return Markup('<span class="quiet">unknown</span>')
    age = (time.time() if now is None else now) - at
    time_then = datetime.fromtimestamp(at, UTC)
    stamp = time_then.strftime("%Y-%m-%d %H:%M:%S UTC")
    words = f"in {_span(-age)}" if age < -1 else "now" if age < 1 else f"{_span(age)} ago"
    if abs(age) >= STEPS[-1][0]:
        words = time_then.strftime("%Y-%m-%d")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(time_then.isoformat(), stamp, words)


def moment(at: float) -> str:
    """Return a time as a date and minutes in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _span(age: float) -> str:
    _, unit, name = next((step for step in STEPS if age < step[0]), STEPS[-1])
    return f"{age / unit:.0f} {name}"


def seconds(value: float | None) -> str:
    """Return a duration, as 0.25 s, 12 s or 3 h."""
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if 0 <= value < 1 else _span(value)


def num(value: float | None, digits: int = 0) -> str:
    """Return a number with a thin space between thousands; a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", "\u202f")


def signed(value: float | None, digits: int = 3) -> str:
    """Return a number with its sign, and a true minus."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}"
    if not text.strip("+-0."):
        text = text.lstrip("+-")
    return text.replace("-", "\u2212")


def percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}%}"


def prob(logprob: float) -> str:
    """Return the probability of a log-probability, with as many digits as say something."""
    p = math.exp(min(0.0, logprob))
    return f"{p:.2f}" if p >= 0.01 else f"{p:.1e}"
