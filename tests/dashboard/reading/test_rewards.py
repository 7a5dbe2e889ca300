"""Covers dashboard/reading/fleet.py and dashboard/reading/accounts.py too."""

import dataclasses
from pathlib import Path

import pytest
from fuzz.seen_history import FIRST, STEPS

from ostinato.dashboard.access import OPERATOR, Viewer
from ostinato.dashboard.reading import accounts, fleet, rewards
from ostinato.dashboard.reading.base import AskedError, RecordSource


def test_each_part_has_a_spread_for_each_version(history: RecordSource) -> None:
    answer = rewards.seen(history, OPERATOR, {})
    assert answer["source"] == "practice" and answer["counts"]["live"] == 1
    parts = {part["name"]: part for part in answer["parts"]}
    assert list(parts) == ["total", "solved", "effort", "broken"]
    spread = parts["solved"]["spreads"][-1]
    assert spread["quantiles"] == sorted(spread["quantiles"]) and spread["low"] <= spread["mean"]
    live = rewards.seen(history, OPERATOR, {"source": "live"})
    assert {part["name"] for part in live["parts"]} == {"total", "outcome", "complaint", "broken", "effort"}
    with pytest.raises(AskedError):
        rewards.seen(history, OPERATOR, {"source": "teacher"})


def test_alarms_name_the_sessions_that_show_them(history: RecordSource) -> None:
    alarms = rewards.seen(history, OPERATOR, {})["alarms"]
    assert [alarm["sessions"] for alarm in alarms] == [["e3-90"], ["e3-2", "e3-8", "e3-14"]]
    assert "the promotion was held" in alarms[1]["words"]


def test_behaviours_are_read_again_and_those_that_never_move_are_named(history: RecordSource) -> None:
    answer = rewards.seen(history, OPERATOR, {})
    assert "tampering" in answer["still"] and answer["watching"]
    assert all(len(each["points"]) <= 20 for each in answer["behaviours"])
    assert rewards.seen(dataclasses.replace(history, lexicon=None), OPERATOR, {})["behaviours"] == []


def test_the_hidden_satisfaction_of_a_simulated_week_stands_beside_the_reward(
    history: RecordSource, tmp_path: Path
) -> None:
    truth = rewards.seen(history, OPERATOR, {})["truth"]
    assert [one["promoted"] for one in truth["cycles"]] == [False, True, False]
    assert truth["gained"]["estimate"] == 0.11 and not truth["fault"]
    alone = dataclasses.replace(history, directory=tmp_path)
    assert rewards.seen(alone, OPERATOR, {})["truth"] is None
    (tmp_path / "week.json").write_text('{"cycles": [{"hours": 1}]}')
    fault = rewards.seen(alone, OPERATOR, {})["truth"]["fault"]
    assert "week.json in the run folder cannot be read" in fault


def test_the_fleet_says_how_far_each_arm_is_behind(history: RecordSource, tmp_path: Path) -> None:
    answer = fleet.seen(history, OPERATOR, {})
    champion, challenger = answer["arms"]
    assert (champion["lag"], challenger["lag"]) == (FIRST + STEPS - 1 - 7, 0)
    assert challenger["served"][0]["version"] == FIRST + STEPS - 1 and len(challenger["engines"]) == 2
    assert challenger["tokens_a_second"] > 0 and challenger["latency_s"] > 0
    assert "is not there" in answer["trouble"] and not answer["objects"]
    weights = tmp_path / "objects" / "weights" / "versions"
    weights.mkdir(parents=True)
    (weights / "0000000008.json").write_bytes(b"x" * 70)
    stored = fleet.seen(dataclasses.replace(history, directory=tmp_path), OPERATOR, {})
    sizes = {link["version"]: link["stored"] for link in stored["chain"]}
    assert stored["trouble"] is None and (sizes[8], sizes[7]) == (70, 0)
    (tmp_path / "config.toml").write_text('[store]\nobjects = "s3://weights/run"\n')
    stored = fleet.seen(dataclasses.replace(history, directory=tmp_path), OPERATOR, {})
    assert "lie in s3://weights/run" in stored["trouble"] and not stored["objects"]


def test_accounts_show_no_key_and_what_a_purge_touched(history: RecordSource) -> None:
    answer = accounts.seen(history, OPERATOR, {})
    assert len(answer["keys"]) == 5 and all(len(key["id"]) == 8 for key in answer["keys"])
    (purged,) = answer["purges"]
    assert (purged["session"], purged["by"], purged["turns"], purged["versions"]) == (
        "gone-1",
        "legal",
        2,
        [],
    )
    assert [each["holds"] for each in answer["consents"]].count(True) == 4
    own = accounts.seen(history, Viewer(name="root", organisation="globex", admin=True), {})
    assert {key["organisation"] for key in own["keys"]} == {"globex"} and own["purges"] == []
