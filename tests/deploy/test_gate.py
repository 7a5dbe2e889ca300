import random
from dataclasses import replace

import pytest

from ostinato.deploy.gate import GateError, gate
from ostinato.deploy.outcomes import Measurement, TaskOutcome
from ostinato.types import Decision, Report, Verdict

SPLITS = {"seeds": 300, "names": 120, "families": 60}
RATE = {"seeds": 0.6, "names": 0.5, "families": 0.02}


def measured(
    version: int, gain: float = 0.0, *, on: str = "", passes: int = 3, tampered: float = 0.0, seed: int = 0
) -> Measurement:
    """Return a version that solves as much as every other plus `gain`, on one split or on all."""
    rng, tasks = random.Random(f"{version}/{seed}"), random.Random("tasks")
    outcomes = []
    for split, n in SPLITS.items():
        for index in range(n):
            hard = tasks.gauss(0, 0.2) if RATE[split] > 0.1 else 0.0
            p = RATE[split] + hard + (gain if on in {"", split} else 0.0)
            outcomes.append(
                TaskOutcome(
                    task=f"{split}-{index}",
                    split=split,
                    cluster=str(index // 3),
                    solved=tuple(rng.random() < p for _ in range(passes)),
                    tampered=tuple(rng.random() < tampered for _ in range(passes)),
                )
            )
    return Measurement(report=Report(version=version, scores={}, harness="9f"), outcomes=tuple(outcomes))


def verdict(gain: float = 0.0, **settings: float | str) -> Verdict:
    return gate(measured(1), measured(2, gain, **settings), margin=0.05)  # type: ignore[arg-type]


def test_a_better_candidate_is_admitted_not_promoted() -> None:
    result = verdict(0.10)
    assert (result.version, result.decision) == (2, Decision.ADMIT)
    assert not result.decision.promotes
    assert result.evidence["losses"]["seeds"]["low"] > -0.05


def test_best_of_k_stands_beside_the_mean_and_decides_nothing() -> None:
    """A candidate that solves twice what it solved once gains on the mean, and not on the best of two."""

    def twice(version: int, *solved: bool) -> Measurement:
        whole = measured(version)
        return replace(
            whole, outcomes=tuple(replace(each, solved=solved, tampered=()) for each in whole.outcomes)
        )

    steadier = gate(twice(1, True, False), twice(2, True, True), margin=0.05)
    assert steadier.evidence["changes"]["seeds"]["estimate"] > 0.4
    assert abs(steadier.evidence["best of 2"]["seeds"]["estimate"]) < 0.01
    assert "beside it, best of 2 on seeds" in steadier.reason
    single = gate(twice(1, True), twice(2, True), margin=0.05)
    assert "best of" not in single.reason and "best of 1" not in single.evidence


@pytest.mark.parametrize("split", ["seeds", "names"])
def test_a_loss_on_one_split_is_not_offset_by_gains_elsewhere(split: str) -> None:
    worse = measured(2, -0.25, on=split)
    result = gate(measured(1), worse, margin=0.05)
    assert result.decision is Decision.ROLL_BACK
    assert f"{split} lost" in result.reason and "families" not in result.reason


def test_few_tasks_prove_nothing() -> None:
    small = [replace(m, outcomes=m.outcomes[:12]) for m in (measured(1), measured(2))]
    result = gate(*small, margin=0.05)
    assert result.decision is Decision.HOLD and "seeds may have lost 0.05" in result.reason


def test_agreement_on_a_few_tasks_proves_nothing_about_all() -> None:
    few = [
        replace(m, outcomes=tuple(replace(o, solved=(False,), tampered=(False,)) for o in m.outcomes[:12]))
        for m in (measured(1), measured(2))
    ]
    assert gate(*few, margin=0.05).decision is Decision.HOLD


def test_a_guarded_rate_that_certainly_rose_rolls_back() -> None:
    result = verdict(0.1, tampered=0.3)
    assert result.decision is Decision.ROLL_BACK and "tampered rose" in result.reason


def test_a_guarded_rate_that_may_have_risen_holds() -> None:
    result = verdict(0.1, tampered=0.055)
    assert result.decision is Decision.HOLD and "tampered may be worse by 0.05" in result.reason


def test_a_stricter_level_needs_more_evidence() -> None:
    before, after = measured(1), measured(2, 0.02)
    assert gate(before, after, margin=0.05).decision is Decision.ADMIT
    strict = gate(before, after, margin=0.05, alpha=1e-6, experiment="e1")
    assert strict.decision is Decision.HOLD
    assert (strict.evidence["experiment"], strict.evidence["alpha"]) == ("e1", 1e-6)


def test_versions_are_compared_only_on_the_same_tasks_passes_and_order() -> None:
    before = measured(1)
    reversed_order = replace(before, outcomes=before.outcomes[::-1])
    for other in (measured(2, passes=2), replace(before, outcomes=before.outcomes[:-1]), reversed_order):
        with pytest.raises(GateError, match="in the same order, in as many passes"):
            gate(before, other, margin=0.05)
    nothing = replace(before, outcomes=())
    with pytest.raises(GateError, match="0 and 0 tasks"):
        gate(nothing, nothing, margin=0.05)


def test_scores_under_two_harnesses_are_not_compared() -> None:
    other = replace(measured(2), report=Report(version=2, scores={}, harness="4c"))
    with pytest.raises(GateError, match="version 2 under 4c: measure both under the same"):
        gate(measured(1), other, margin=0.5)


def test_clusters_that_move_together_are_one_piece_of_evidence() -> None:
    """Many tasks are few facts when whole clusters are won or lost at once."""
    before = measured(1, passes=1)
    rng = random.Random(3)
    moved = {str(index): rng.choice([-1, 0, 0, 1]) for index in range(10)}

    def candidate(cluster_of: int) -> Measurement:
        outcomes = []
        for index, o in enumerate(before.outcomes):
            change = moved[str(index % 10)] if o.split == "seeds" else 0
            solved = o.solved if change == 0 else (change > 0,)
            outcomes.append(replace(o, solved=solved, cluster=str(index % cluster_of)))
        return Measurement(report=Report(version=2, scores={}, harness="9f"), outcomes=tuple(outcomes))

    apart, together = candidate(10_000), candidate(10)
    clustered_before = [
        replace(before, outcomes=tuple(replace(o, cluster=c.cluster) for o, c in pairs))
        for pairs in (zip(before.outcomes, side.outcomes, strict=True) for side in (apart, together))
    ]
    widths = []
    for old, new in zip(clustered_before, (apart, together), strict=True):
        change = gate(old, new, margin=0.05).evidence["changes"]["seeds"]
        widths.append(change["high"] - change["low"])
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("forgeable", False, True), ("untested", False, True)],
)
def test_every_rate_is_guarded(name: str, before: bool, after: bool) -> None:
    def with_rate(side: Measurement, value: bool) -> Measurement:
        outcomes = (replace(o, **{name: (value,) * len(o.solved)}) for o in side.outcomes)
        return replace(side, outcomes=tuple(outcomes))

    same, more = (with_rate(measured(2, 0.02), value) for value in (before, after))
    current = with_rate(measured(1), before)
    assert gate(current, same, margin=0.05).decision is Decision.ADMIT
    result = gate(current, more, margin=0.05)
    assert result.decision is Decision.ROLL_BACK and f"{name} rose" in result.reason


def test_rates_over_different_passes_are_not_compared() -> None:
    before, after = measured(1), measured(2)
    some = (replace(o, untested=(True,) * 3) if i else o for i, o in enumerate(after.outcomes))
    with pytest.raises(GateError, match="'untested' is not known of every pass of both"):
        gate(before, replace(after, outcomes=tuple(some)), margin=0.05)


def test_a_task_that_one_side_left_out_counts_for_neither() -> None:
    before, after = measured(1), measured(2, 0.10)
    gone = before.outcomes[3].task, after.outcomes[5].task
    left = before.without(gone[:1]), after.without(gone[1:])
    one, other = (replace(m, left_out=(task,)) for m, task in zip(left, gone, strict=True))
    result = gate(one, other, margin=0.05)
    assert result.decision is Decision.ADMIT
    assert (result.evidence["tasks"], result.evidence["left_out"]) == (len(before.outcomes) - 2, sorted(gone))
    with pytest.raises(GateError, match="did not do the same"):
        gate(one, after, margin=0.05) if one.left_out == () else gate(left[0], after, margin=0.05)
