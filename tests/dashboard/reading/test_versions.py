"""Covers dashboard/reading/now.py: what is served now, and the versions behind it."""

import pytest

from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.reading import now, versions
from ostinato.dashboard.reading.base import NotThereError, RecordSource
from ostinato.store import Store
from ostinato.types import Arm, Decision, Report, Score, Verdict


def test_a_report_stands_beside_its_parents(reading: RecordSource) -> None:
    answer = versions.one(reading, OPERATOR, {"version": "4"})
    seeds = answer["compared"][0]
    assert seeds["split"] == "seeds" and seeds["parent"]["solve"] < seeds["solve"]
    assert seeds["low"] < seeds["solve"] < seeds["high"]
    assert answer["children"] == [5, 7]


def test_a_report_stands_beside_that_of_the_nearest_ancestor_that_has_one(reading: RecordSource) -> None:
    """Version 3 is measured and comes from 2, which is not, as 1 is not: 0 is."""
    answer = versions.one(reading, OPERATOR, {"version": "3"})
    assert answer["version"]["parent"] != answer["beside"] == 0
    assert all(each["parent"] for each in answer["compared"])
    assert versions.one(reading, OPERATOR, {"version": "0"})["beside"] is None


def test_the_split_that_decides_comes_first(reading: RecordSource, store: Store) -> None:
    score = Score(solve=0.5, n=2, low=0.1, high=0.9, k=2, best=0.75)
    for version, splits in ((4, ("families", "larger", "seeds")), (5, ("pairs", "mined"))):
        store.add_report(Report(version=version, scores=dict.fromkeys(splits, score)))
    rows = {each["version"]: each for each in versions.listed(reading, OPERATOR, {})["versions"]}
    assert [rows[version]["scores"][0]["split"] for version in (4, 5)] == ["seeds", "mined"]
    assert rows[4]["scores"][0]["best"] == 0.75


def test_a_version_without_a_report_or_a_verdict_is_shown(reading: RecordSource) -> None:
    answer = versions.one(reading, OPERATOR, {"version": "8"})
    assert answer["compared"] == [] and answer["verdicts"] == []
    assert answer["kinds"] == [{"kind": "without a kind", "groups": 1}]
    with pytest.raises(NotThereError):
        versions.one(reading, OPERATOR, {"version": "99"})


def test_the_list_has_each_version_once_and_pages_backwards(reading: RecordSource) -> None:
    answer = versions.listed(reading, OPERATOR, {})
    assert [each["version"] for each in answer["versions"]] == list(range(9))
    assert answer["versions"][6]["decision"] == "hold"
    older = versions.listed(reading, OPERATOR, {"before": "3"})
    assert [each["version"] for each in older["versions"]] == [0, 1, 2]


def test_now_counts_the_sessions_of_each_arm(reading: RecordSource) -> None:
    answer = now.seen(reading, OPERATOR, {})
    champion = answer["arms"][0]
    assert (champion["version"], champion["sessions"], champion["users"]) == (7, 2, 2)
    assert {each["state"] for each in answer["states"]} == {"trained"}
    assert answer["verdicts"][0]["decision"] == "promote" and answer["alarms"] == []
    assert "Version 8 is being tried on 50% of the users" in answer["headline"]
    assert champion["speed"]["turns"] == 21 and answer["cycle"] is None


def test_alarms_come_in_words(reading: RecordSource) -> None:
    reading.store.set_arms([Arm(name="champion", version=7, share=1.0, engines=())])
    reading.store.add_verdict(Verdict(version=8, decision=Decision.ROLL_BACK, reason="worse"))
    alarms = now.seen(reading, OPERATOR, {})["alarms"]
    assert len(alarms) == 2 and "no engine" in alarms[0] and "rolled back" in alarms[1]


def test_an_empty_store_is_answered(tmp_path: object) -> None:
    store = Store.open(f"{tmp_path}/empty.db")
    reading = RecordSource(store=store, lexicon=None)
    assert now.seen(reading, OPERATOR, {})["arms"] == []
    assert versions.listed(reading, OPERATOR, {})["versions"] == []
    store.close()
