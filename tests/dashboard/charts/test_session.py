"""Covers dashboard/charts/svg.py: what is drawn is escaped and has a name for those who do not see it."""

from xml.etree import ElementTree

from ostinato.dashboard.charts.session import message_graph, survival
from ostinato.dashboard.charts.svg import element

SVG = {"svg": ""}


def turn(number: int, segment: int, base: int | None) -> dict[str, object]:
    return {
        "number": number,
        "segment": segment,
        "base": base,
        "kind": "main",
        "state": None,
        "untrainable": None,
        "broken": None,
    }


def test_each_turn_is_a_node_and_each_continuation_an_edge() -> None:
    turns = [turn(0, 0, None), turn(1, 0, 0), turn(2, 1, 0)]
    drawn = ElementTree.fromstring(str(message_graph(turns, [0, 1], "/session?id=a")))
    links = drawn.findall("a")
    assert [link.get("href") for link in links] == ["#turn-0", "#turn-1", "/session?id=a&from=2#turn-2"]
    assert len(drawn.findall("line")) == 1 and len(drawn.findall("path")) == 1
    assert "2 segments" in (drawn.get("aria-label") or "")


def test_an_edit_that_was_never_measured_says_so() -> None:
    drawn = str(survival({"survival": [], "moments": [], "fate": "open"}))
    assert "nothing was measured" in drawn
    ElementTree.fromstring(drawn)


def test_survival_falls_with_the_rate() -> None:
    edit = {
        "survival": [{"delay": 0.0, "rate": 1.0}, {"delay": 600.0, "rate": 0.0}],
        "moments": [{"what": "reverted", "signal": "s", "delay": 600.0}],
        "fate": "reverted",
    }
    points = [one for one in ElementTree.fromstring(str(survival(edit))) if one.get("class") == "point"]
    assert float(points[0].get("cy") or 0) < float(points[1].get("cy") or 0)
    assert float(points[0].get("cx") or 0) < float(points[1].get("cx") or 0)


def test_hostile_words_stay_words() -> None:
    drawn = element("text", "<script>alert(1)</script>", class_='"><script>')
    assert "<script>" not in drawn
