"""A declared definition: what it refuses, when each part is known, and what it is worth."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.rewards.builders import ENDED, signal, turn

from ostinato.config import ConfigError
from ostinato.rewards.definition import DefinitionError
from ostinato.rewards.live.definition import LIVE, LiveDefinition, LivePart, read_definition
from ostinato.types import PartState, Reward, RewardPart, Signal, SignalKind

WINDOW = LIVE.train_after_s
KEPT, REVERTED = SignalKind.EDIT_KEPT, SignalKind.EDIT_REVERTED


def live(*signals: Signal, turns: int = 1) -> Reward:
    return LIVE.score("s", [turn(i) for i in range(turns)], signals)


def part(reward: Reward, name: str) -> RewardPart:
    return next(part for part in reward.parts if part.name == name)


def defined(tmp_path: Path, text: str) -> LiveDefinition:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n' + text)
    return read_definition(path)


def test_outcomes_keep_their_order() -> None:
    kept, edited, reverted, abandoned = (
        live(signal(kind)).total for kind in (KEPT, SignalKind.EDIT_EDITED, REVERTED, SignalKind.ABANDONED)
    )
    assert kept > edited > reverted and edited > abandoned
    assert live(signal(KEPT), signal(SignalKind.COMPLAINT)).total < kept


def test_a_question_costs_its_turn_and_pays_when_the_task_is_ambiguous() -> None:
    """Acting blindly is right half the time in an ambiguous task, and always in a clear one."""
    kept, reverted = signal(KEPT), signal(REVERTED)
    blindly = (live(kept, turns=2).total + live(reverted, turns=2).total) / 2
    assert live(kept, turns=3).total > blindly
    assert live(kept, turns=3).total < live(kept, turns=2).total


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_judgement_of_a_question_pays_nothing(value: float) -> None:
    question = signal(SignalKind.QUESTION_ANSWERED, value)
    assert live(question, signal(KEPT)).total == live(signal(KEPT)).total


def test_the_best_thumb_is_worth_less_than_a_kept_edit() -> None:
    """A policy that pleases and does not work must not come out ahead of one that works."""
    pleased = [signal(SignalKind.RATING), signal(SignalKind.FOLLOW_UP, 0.0), signal(REVERTED)]
    assert live(*pleased).total < live(signal(KEPT), signal(SignalKind.RATING, 0.0)).total


def test_a_session_that_edits_nothing_is_worth_less_than_one_whose_edit_is_kept() -> None:
    late = ENDED + 30 * WINDOW
    silent = LIVE.score("s", [turn()], (), as_of=late)
    assert not any(each.censored for each in silent.parts)
    assert silent.total < LIVE.score("s", [turn()], [signal(KEPT)], as_of=late).total


# Maturity


def test_a_part_is_waited_for_until_the_window_is_over() -> None:
    def states(age: float) -> dict[str, PartState]:
        return {each.name: each.state for each in LIVE.score("s", [turn()], (), as_of=ENDED + age).parts}

    assert states(WINDOW - 1)["kept"] is PartState.CENSORED and states(WINDOW)["kept"] is PartState.EXPIRED
    assert states(WINDOW - 1)["effort"] is PartState.OBSERVED


def test_a_censored_part_is_worth_nothing_and_silence_what_was_declared() -> None:
    quiet = LiveDefinition(
        name="quiet", parts={"kept": LivePart(weight=1.0), "tests": LivePart(weight=0.5, silence=-0.5)}
    )
    values = [part(quiet.score("s", [turn()], (), as_of=at), "tests").value for at in (ENDED, ENDED + WINDOW)]
    assert values == [0.0, -0.25]
    assert part(quiet.score("s", [turn()], ()), "tests").state is PartState.CENSORED


def test_a_session_is_settled_by_its_age_alone() -> None:
    kept = signal(KEPT, at=ENDED + 1)
    late = signal(REVERTED, at=ENDED + WINDOW + 1)
    assert LIVE.settled("s", [turn()], [kept], as_of=ENDED + WINDOW - 1) is None
    settled = LIVE.settled("s", [turn()], [kept, late], as_of=ENDED + 9 * WINDOW)
    assert settled == LIVE.score("s", [turn()], [kept], as_of=ENDED + WINDOW)
    assert settled is not None and settled.as_of == ENDED + WINDOW
    assert LIVE.settled("s", [], [kept], as_of=1e12) is None


def test_a_fact_that_comes_after_its_window_scores_the_session_anew() -> None:
    kept, reverted = signal(KEPT, at=ENDED + 1), signal(REVERTED, at=ENDED + 3 * WINDOW)
    before = LIVE.score("s", [turn()], [kept, reverted], as_of=ENDED + 2 * WINDOW)
    after = LIVE.score("s", [turn()], [kept, reverted], as_of=ENDED + 4 * WINDOW)
    assert (part(before, "kept").value, part(after, "reverted").value) == (1.0, -0.5)


def test_signals_after_as_of_do_not_count() -> None:
    kept, reverted = signal(KEPT, at=200.0), signal(REVERTED, at=300.0)
    totals = [LIVE.score("s", [turn()], (kept, reverted), as_of=at).total for at in (199, 200, 300)]
    base = totals[0]
    assert [total - base for total in totals] == pytest.approx([0.0, 1.0, -0.5])


# The file


def test_a_definition_survives_its_own_text(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_text(LIVE.text())
    assert read_definition(path) == LIVE and read_definition(path).hash() == LIVE.hash()


def test_every_weight_and_window_changes_the_hash() -> None:
    others = [
        replace(LIVE, train_after_s=1800.0),
        replace(LIVE, background_after_s=1800.0),
        replace(LIVE, name="other"),
        replace(LIVE, parts={**LIVE.parts, "kept": LivePart(weight=2.0)}),
        replace(LIVE, effort=replace(LIVE.effort, k=0.5)),
        replace(LIVE, late=replace(LIVE.late, share=0.5)),
        replace(LIVE, outcomes={**LIVE.outcomes, "merged": replace(LIVE.outcomes["merged"], margin=0.1)}),
    ]
    assert len({LIVE.hash(), *(other.hash() for other in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[parts.kept]\nweight = 1\n[parts.vibes]\nweight = 1", "unknown fact 'vibes'"),
        ("[parts.mine]\nreads = 'keptt'\nweight = 1", "unknown fact 'keptt'"),
        ("[parts.reverted]\nweight = -1\n[parts.effort]\nweight = -1", "can pay for nothing"),
        ("[parts.kept]\nweight = 0", "can pay for nothing"),
        ("[parts]", "can pay for nothing"),
        ("train_after_s = 0\n[parts.kept]\nweight = 1", "train_after_s is 0"),
        ("background_after_s = 0\n[parts.kept]\nweight = 1", "background_after_s is 0"),
        ("[parts.kept]\nweight = nan", "weight is nan"),
        ("[parts.kept]\nweight = 1\nsilence = 2", "silence is 2"),
        ("[parts.kept]\nweight = 1\nat_s = 5", "share_kept needs at_s"),
        ("[parts.share_kept]\nweight = 1", "share_kept needs at_s"),
        ("[parts.share_kept]\nweight = 1\nat_s = 90000", "at_s is 90000: .* is an outcome"),
        ("[parts.survived]\nweight = 1", "pays for the outcome 'survived'"),
        ("[parts.mine]\nreads = 'returned'\nweight = 1", "pays for the outcome 'returned'"),
        ("[parts.kept]\nweight = 1\n[outcomes.kept]\nreads = 'survived'", "pays for the outcome 'kept'"),
        ("[parts.kept]\nweight = 1\n[outcomes.vibes]", "unknown outcome 'vibes'"),
        ("[parts.kept]\nweight = 1\n[outcomes.late]\nreads = 'tests'", "unknown outcome 'tests'"),
        ("[parts.kept]\nweight = 1\n[outcomes.merged]\nafter_s = 0", "after_s is 0"),
        ("[parts.kept]\nweight = 1\n[outcomes.merged]\nsilence = 2", "silence is 2"),
        ("[parts.kept]\nweight = 1\n[outcomes.merged]\nmargin = 0", "margin is 0"),
        ("[parts.kept]\nweight = 1\n[late]\nshare = 0.1\nafter_s = 60", "longer than train_after_s"),
        ("[parts.kept]\nweight = 1\n[late]\nshare = 2", "late.share is 2"),
        ("[parts.kept]\nweight = 1\nwindows = 5", "unknown key"),
        ("[parts.kept]\nweight = 1\n[effort]\ntokens_per_turn = 0.0", "tokens_per_turn 0.0"),
        ("[parts.kept]\nweight = 1\n[effort]\ntokens_per_turn = -10.0", "tokens_per_turn -10.0"),
        ("[parts.kept]\nweight = 1\n[effort]\nk = -1.0", "k is -1.0"),
        ("[parts.kept]\nweight = 1\n[effort]\nq = nan", "q nan"),
    ],
)
def test_a_definition_that_cannot_work_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises((DefinitionError, ConfigError), match=why):
        defined(tmp_path, text)


def test_each_kind_of_session_is_mature_by_its_own_window() -> None:
    """One in the background is trained on when its report may have been read, and holds no other one up."""
    young = next(f"s{n}" for n in range(99) if not LIVE.late.waits(f"s{n}"))
    late = next(f"s{n}" for n in range(99) if LIVE.late.waits(f"s{n}"))
    behind = signal(SignalKind.BACKGROUND, at=ENDED)
    taken = signal(KEPT, at=ENDED + 9 * WINDOW)
    night = ENDED + LIVE.background_after_s
    assert LIVE.settles_at([turn()]) == ENDED + WINDOW and LIVE.settles_at([turn()], [behind]) == night
    assert LIVE.ripe(young, [turn()], [behind, taken], as_of=night - 1) is None
    assert LIVE.ripe(young, [turn()], [behind, taken], as_of=ENDED + WINDOW) is None
    ripe = LIVE.ripe(young, [turn()], [behind, taken], as_of=night)
    assert ripe is not None and ripe[0].total > 0.9
    assert LIVE.ripe(young, [turn()], [taken], as_of=ENDED + WINDOW) is not None
    for signals in ([], [behind]):
        assert LIVE.trains_at(late, [turn()], signals) == ENDED + LIVE.late.after_s
    waiting = LIVE.score(young, [turn()], [behind], as_of=night - 1)
    assert (
        waiting.parts[0].censored and not LIVE.score(young, [turn()], [behind], as_of=night).parts[0].censored
    )


def test_a_team_may_wait_longer_and_train_on_what_was_left_after_days(tmp_path: Path) -> None:
    text = "train_after_s = 604800\n[parts.left]\nreads = 'share_kept'\nat_s = 259200\nweight = 1"
    week = defined(tmp_path, text)
    seen = signal(SignalKind.EDIT_SURVIVAL, 0.75, at=ENDED + 259_200, edit="a", turn=0)
    assert week.settled("s", [turn()], [seen], as_of=ENDED + 259_200) is None
    settled = week.settled("s", [turn()], [seen], as_of=ENDED + 604_800)
    assert settled is not None and settled.total == 0.75
