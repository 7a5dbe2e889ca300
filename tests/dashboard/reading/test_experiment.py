"""Covers loop/dashboard/link.py and dashboard/reading/words.py too: a trial is judged again."""

import dataclasses

import pytest
from fuzz.seen_history import EXPERIMENT, USERS

from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.reading import experiment
from ostinato.dashboard.reading.base import NotThereError, RecordSource
from ostinato.dashboard.reading.experiment import _conclusion, _needs, _row, _verdicts
from ostinato.types import Decision, Verdict


def test_a_trial_is_judged_again_at_each_look(history: RecordSource) -> None:
    answer = experiment.one(history, OPERATOR, {"id": EXPERIMENT})
    looks = answer["looks"]
    assert [look["sessions"] for look in looks] == sorted({look["sessions"] for look in looks})
    assert len(looks) > 10 and looks[0]["reward"] is None and "too few users" in looks[0]["reason"]
    told = [look["reward"] for look in looks if look["reward"]]
    assert all(change["low"] < change["estimate"] < change["high"] for change in told)
    assert told[-1]["high"] - told[-1]["low"] < told[0]["high"] - told[0]["low"]
    assert sum(looks[-1]["users"].values()) >= USERS and 0 < looks[-1]["ratio"] < 1
    assert {rail["name"] for rail in answer["rails"]} == {"complaints", "abandoned", "broken", "latency"}
    assert all(rail["limit"] > 0 and rail["state"] != "beyond its limit" for rail in answer["rails"])
    assert {rail["name"]: rail["scale"] for rail in answer["rails"]}["complaints"] == 1.25
    assert "beside: kept " in answer["words"] and "latency" in answer["words"]
    needs = answer["needs"]
    assert 0 < needs["sessions"] < needs["horizon"] == 400 and needs["until"] > answer["now"]
    assert answer["steering"]["confirm"] == f"version {answer['arms'][1]['version']}"
    assert answer["audit"][0]["action"] == "alarm" and answer["audit"][1]["of_person"]


def test_a_trial_without_logged_terms_shows_its_verdict(history: RecordSource) -> None:
    answer = experiment.one(history, OPERATOR, {"id": "e1"})
    assert answer["looks"] == [] and "not logged" in answer["note"]
    assert answer["evidence"]["promoting"]["low"] == 0.02 and answer["rails"][0]["limit"] is None
    assert answer["words"].startswith("Version 7 was shown to be better")
    with pytest.raises(NotThereError):
        experiment.one(history, OPERATOR, {"id": "e9"})


def test_the_record_alone_says_what_is_missing(history: RecordSource) -> None:
    answer = experiment.one(dataclasses.replace(history, loop=None), OPERATOR, {"id": EXPERIMENT})
    assert answer["looks"] == [] and "--directory" in answer["note"] and answer["steering"] is None


def test_all_experiments_are_listed_newest_first(history: RecordSource) -> None:
    rows = experiment.listed(history, OPERATOR, {})["experiments"]
    assert {row["id"] for row in rows} == {"e1", EXPERIMENT}
    assert next(row for row in rows if row["id"] == EXPERIMENT)["running"]


def _look(low: float, estimate: float, high: float, sessions: int = 100) -> dict[str, object]:
    reward = {"low": low, "estimate": estimate, "high": high}
    return {"sessions": sessions, "reward": reward, "void": None, "reason": ""}


def test_the_conclusion_follows_the_interval() -> None:
    row = {"versions": {"challenger": 9}, "verdict": None, "running": True}
    assert "better so far" in _conclusion(row, _look(0.01, 0.1, 0.2))
    assert "worse so far" in _conclusion(row, _look(-0.3, -0.1, -0.01))
    assert "Nothing is shown yet" in _conclusion(row, _look(-0.1, 0.1, 0.3))
    assert "no session" in _conclusion(row, None)
    ended = row | {"running": False, "verdict": {"decision": "hold", "reason": "r"}}
    assert "stayed" in _conclusion(ended, None)


def test_late_facts_are_the_conclusion_of_a_promoted_experiment() -> None:
    late = [(Decision.DEMOTE, "taken back since: undone"), (Decision.CONFIRM, "stays: undone")]
    late.append((Decision.INCONCLUSIVE, "stays: undone"))
    won = Verdict(version=9, decision=Decision.PROMOTE, reason="better", evidence={"experiment": "e"}, id="e")
    for decision, words in late:
        facts = Verdict(version=9, decision=decision, reason="undone", evidence={"release": "e"}, id="e/late")
        found = _verdicts([won, facts])
        assert list(found) == ["e"] and words in _conclusion(_row("e", None, found["e"], False), None)
    assert "until late facts speak" in _conclusion(_row("e", None, [won], False), None)


def test_twice_the_distance_needs_twice_the_sessions() -> None:
    terms = {"since": 0.0, "horizon": 400}
    needs = _needs(terms, [_look(-0.1, 0.1, 0.3)], now=10 * 86_400.0)
    assert needs is not None and needs["shown_at"] == 200 and needs["a_day"] == 10.0
    assert needs["shown_on"] == 20 * 86_400.0 and needs["until"] == 40 * 86_400.0
    assert _needs(terms, [], now=86_400.0) == {"sessions": 0, "horizon": 400, "a_day": 0.0, "until": None}
