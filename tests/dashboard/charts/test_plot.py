"""Covers dashboard/charts/training.py and dashboard/charts/experiment.py too."""

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.dashboard.charts.experiment import chain_chart, progress, sequence
from ostinato.dashboard.charts.plot import Frame, Series, change, lines, shares, spreads, ticks
from ostinato.dashboard.charts.training import account_bar, strip, training_charts

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=60))
def test_every_point_lies_inside_its_frame(points: list[tuple[float, float]]) -> None:
    drawn = ElementTree.fromstring(str(lines([Series(name="s", points=points)], Frame(label="l"))))
    for circle in drawn.iter("circle"):
        assert 0 <= float(circle.get("cx") or -1) <= 360 and 0 <= float(circle.get("cy") or -1) <= 168
    assert drawn.get("aria-label") == "l"


@given(FINITE, st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert len(found) <= 7 and all(low - span * 1e-6 <= each <= low + span * (1 + 1e-6) for each in found)
    assert all(each == int(each) for each in ticks(low, low + span + 2, whole=True))


def test_a_band_is_drawn_around_its_line_and_a_single_point_has_a_bar() -> None:
    series = Series(name="s", points=[(0.0, 1.0), (1.0, 2.0)], low=[0.5, 1.5], high=[1.5, 2.5])
    drawn = ElementTree.fromstring(str(lines([series], Frame(label="l"))))
    assert len(drawn.findall("polygon")) == len(drawn.findall("polyline")) == 1
    one = Series(name="s", points=[(0.0, 1.0)], low=[0.5], high=[1.5])
    drawn = ElementTree.fromstring(str(lines([one], Frame(label="l"))))
    assert [each.get("class") for each in drawn.findall("line")][-1] == "interval l0"
    assert "between 0.5 and 1.5" in ElementTree.tostring(drawn, encoding="unicode")


def test_runs_are_drawn_over_each_other_in_different_styles() -> None:
    blank = {"groups": 1, "best": None, "solved": None, "staleness": None, "figures": {"gradient": 1.0}}
    steps = [blank | {"version": v, "reward": {"mean": v / 9, "low": 0.0, "high": 1.0}} for v in (1, 2)]
    runs = [{"name": name, "steps": steps} for name in ("a", "b")]
    charts = training_charts(runs, [{"name": "gradient", "words": "Gradient norm", "as": ""}])
    assert [chart["title"] for chart in charts] == ["Reward of a group", "Gradient norm"]
    drawn = ElementTree.fromstring(str(charts[0]["drawn"]))
    assert [each.get("class") for each in drawn.findall("polyline")] == ["line l0", "line l1"]


def test_small_pictures_say_their_values() -> None:
    assert "from -0.50 to +0.90" in str(strip([0.9, -0.5])) and str(strip([])) == "–"
    assert "the limit is 0.1" in str(change({"estimate": 0.0, "low": -0.1, "high": 0.05}, -0.2, 0.2, 0.1))
    assert "25%" in str(progress(100, 400))
    bar = ElementTree.fromstring(
        str(account_bar([{"state": "a", "count": 1}, {"state": "b", "count": 3}], "state"))
    )
    assert [float(each.get("width") or 0) for each in bar.findall("rect")] == pytest.approx([179.0, 539.0])
    assert str(shares([], "none")) == "" and str(spreads([], Frame(label="l"))) == ""
    link = {"version": 1, "kind": "anchor", "bytes": 5}
    assert "1: anchor of 5 bytes" in str(chain_chart([link]))


def test_a_confidence_sequence_is_cut_where_it_knows_nothing() -> None:
    looks = [
        {
            "sessions": n,
            "reward": {"estimate": 0.1, "low": 0.1 - w, "high": 0.1 + w},
            "harming": {"low": -w, "high": w},
        }
        for n, w in ((10, math.inf), (20, 0.4), (40, 0.2))
    ]
    drawn = sequence(looks, {"margin": 0.05, "horizon": 40})
    text = str(drawn)
    assert "inf" not in text and "the loss that would be too much" in text and "the end of the trial" in text
