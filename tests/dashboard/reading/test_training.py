"""Covers dashboard/reading/steps.py, dashboard/reading/group.py and dashboard/reading/intervals.py: the steps
of training, groups side by side, and the account."""

import dataclasses

import pytest
from fuzz.seen_history import EACH, FIRST, GROUPS, STEPS

from ostinato.dashboard.access import OPERATOR
from ostinato.dashboard.reading import group, training
from ostinato.dashboard.reading.base import NotThereError, RecordSource
from ostinato.dashboard.reading.intervals import mean_of, quantiles, share_of
from ostinato.store import Ledger
from ostinato.types import State


def test_each_step_has_the_ledgers_and_the_learners_figures(history: RecordSource) -> None:
    answer = training.seen(dataclasses.replace(history, beside=(history,)), OPERATOR, {})
    steps = {step["version"]: step for step in answer["runs"][0]["steps"]}
    assert list(steps) == [8, *range(FIRST, FIRST + STEPS)] and len(answer["runs"]) == 2
    last = steps[FIRST + STEPS - 1]
    assert last["groups"] == GROUPS and last["solved"]["n"] == GROUPS * EACH
    assert last["reward"]["low"] < last["reward"]["mean"] < last["reward"]["high"]
    assert 0 <= last["staleness"] <= 2 and last["figures"]["gradient"] > 0
    assert 0 < last["figures"]["idle"] < 1 and last["figures"]["tokens_a_second"] > 100
    assert 0 < last["figures"]["mismatch"] < last["figures"]["mismatch_p99"] and "k1" not in last["figures"]


def test_the_account_adds_up_to_all(history: RecordSource) -> None:
    account = training.seen(history, OPERATOR, {})["account"]
    for kind in ("turns", "prompts"):
        assert sum(row["count"] for row in account[kind]["rows"]) == account[kind]["all"] > 0
    integrity = Ledger(history.store).states()
    counted = {row["state"]: row["count"] for row in account["turns"]["rows"]}
    assert counted["trained"] == integrity[State.TRAINED]
    reasons = {one["reason"] for row in account["turns"]["rows"] for one in row["reasons"]}
    assert reasons == {"the sandbox did not start", "sampled with top_k"}
    dropped = next(
        row for row in account["prompts"]["rows"] if row["stage"] == "practice" and row["phase"] == "dropped"
    )
    assert sum(one["count"] for one in dropped["reasons"]) == dropped["count"] == 7


def test_groups_are_paged_and_chosen_by_version(history: RecordSource) -> None:
    first = training.seen(history, OPERATOR, {})
    older = training.seen(history, OPERATOR, {"before": str(first["next"])})
    ids = [each["id"] for each in (*first["groups"], *older["groups"])]
    assert len(ids) == len(set(ids)) == STEPS * GROUPS + 2
    chosen = training.seen(history, OPERATOR, {"version": str(FIRST)})["groups"]
    assert [each["version"] for each in chosen] == [FIRST] * GROUPS


def test_a_group_stands_side_by_side_with_the_best_first(history: RecordSource) -> None:
    answer = group.one(history, OPERATOR, {"id": "group/practice"})
    advantages = [column["advantage"] for column in answer["columns"]]
    assert advantages == sorted(advantages, reverse=True) and len(advantages) == 4
    assert [column["solved"] for column in answer["columns"]] == [True, True, False, False]
    assert answer["parts"] == ["solved", "effort"] and "product now" in answer["columns"][0]["words"]
    with pytest.raises(NotThereError):
        group.one(history, OPERATOR, {"id": "nowhere"})


def test_intervals_hold_their_estimate() -> None:
    assert mean_of([2.0]) == {"mean": 2.0, "low": 2.0, "high": 2.0, "n": 1}
    assert share_of(10, 10)["high"] == 1.0 > share_of(10, 10)["low"] > 0.6
    assert quantiles([3.0, 1.0, 2.0]) == pytest.approx([1.1, 1.5, 2.0, 2.5, 2.9])
