from xml.etree import ElementTree

from ostinato.dashboard.charts.versions import interval, lineage


def version(number: int, parent: int | None) -> dict[str, object]:
    arms = [{"name": "champion", "share": 1.0}] if number == 2 else []
    return {"version": number, "parent": parent, "decision": "hold" if number else None, "arms": arms}


def test_a_branch_takes_a_lane_of_its_own() -> None:
    drawn = ElementTree.fromstring(str(lineage([version(0, None), version(1, 0), version(2, 0)])))
    nodes = [one for one in drawn.iter("circle") if "node" in (one.get("class") or "")]
    assert [node.get("cy") for node in nodes] == ["30.0", "30.0", "76.0"]
    assert len(drawn.findall("line")) == 2
    assert [one.get("href") for one in drawn.findall("a")][2] == "/version?version=2"


def test_an_interval_is_drawn_around_its_estimate() -> None:
    own, parent = {"solve": 0.5, "low": 0.4, "high": 0.6}, {"solve": 0.2, "low": 0.1, "high": 0.3}
    drawn = ElementTree.fromstring(str(interval(own, parent)))
    lines = [one for one in drawn.findall("line") if "interval" in (one.get("class") or "")]
    assert len(lines) == 2 and float(lines[0].get("x1") or 0) < float(lines[0].get("x2") or 0)
    assert "the one before 20%" in (drawn.get("aria-label") or "")
