"""Covers rewards/definition.py and the parts it adds up, rewards/broken.py, rewards/solved.py,
rewards/tamper.py, rewards/reported.py and rewards/feedback.py, which read signals by rewards/signals.py.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.rewards.definition import LIVE, PRACTICE, LiveReward
from ostinato.rewards.effort import concave_effort
from ostinato.rewards.signals import SignalValueError, VoidSessionError
from ostinato.types import (
    Completion,
    Ending,
    FinishReason,
    Grade,
    PartState,
    Reward,
    Signal,
    SignalKind,
    Turn,
    TurnKind,
)


def turn(index: int = 0, broken: str | None = None, kind: TurnKind = TurnKind.MAIN) -> Turn:
    completion = Completion(ids=(3,), logprobs=(-0.1,), versions=(1,), finish=FinishReason.STOP)
    return Turn(
        session_id="s",
        index=index,
        segment=0,
        arm="main",
        prompt_ids=(1, 2),
        completion=completion,
        started_at=100.0,
        latency_s=1.0,
        broken=broken,
        kind=kind,
    )


def signal(
    kind: SignalKind,
    value: float | str = 1.0,
    at: float = 0.0,
    edit: str | None = None,
    turn: int | None = None,
) -> Signal:
    return Signal(session_id="s", kind=kind, value=value, observed_at=at, edit=edit, turn=turn)


SOLVED = signal(SignalKind.HIDDEN_TESTS)
FAILED = signal(SignalKind.HIDDEN_TESTS, 0.0)
TAMPERED = signal(SignalKind.TAMPERED)


def practice(turns: list[Turn], *signals: Signal) -> Reward:
    return PRACTICE.score("s", turns, signals)


def live(*signals: Signal, turns: int = 1) -> Reward:
    return LIVE.score("s", [turn(i) for i in range(turns)], signals)


@given(st.integers(0, 12), st.booleans(), st.booleans(), st.integers(0, 2))
def test_practice_is_the_documented_sum(turns: int, works: bool, tampered: bool, broken: int) -> None:
    made = [turn(i, "bad JSON" if i < broken else None) for i in range(turns + broken)]
    reward = practice(
        made, signal(SignalKind.HIDDEN_TESTS, float(works)), signal(SignalKind.TAMPERED, float(tampered))
    )
    effort = concave_effort((turns + broken) * (1 + 1 / 500), k=0.3, q=1.5)
    expected = (works and not tampered) - 0.5 * broken - 0.2 * tampered - 0.02 * effort
    assert reward.total == pytest.approx(expected)


def test_a_pass_below_the_lowest_grade_is_worth_nothing() -> None:
    forgeable = signal(SignalKind.GRADE, Grade.FORGEABLE.value)
    solved = {part.name: part for part in practice([turn()], SOLVED, forgeable).parts}["solved"]
    assert (solved.value, solved.evidence) == (0.0, (SOLVED.id, forgeable.id))
    assert practice([turn()], SOLVED, forgeable).total == practice([turn()], FAILED).total
    for grade in (Grade.GUARDED, Grade.JUDGED):
        paid = practice([turn()], SOLVED, signal(SignalKind.GRADE, grade.value))
        assert paid.total == practice([turn()], SOLVED).total
    accepting = replace(PRACTICE, lowest_grade=Grade.FORGEABLE)
    assert accepting.score("s", [turn()], [SOLVED, forgeable]).total == practice([turn()], SOLVED).total
    assert accepting.hash() != PRACTICE.hash()
    strict = replace(PRACTICE, lowest_grade=Grade.JUDGED)
    guarded = [SOLVED, signal(SignalKind.GRADE, Grade.GUARDED.value)]
    assert strict.score("s", [turn()], guarded).total == practice([turn()], FAILED).total
    with pytest.raises(SignalValueError, match="'sworn'"):
        practice([turn()], SOLVED, signal(SignalKind.GRADE, "sworn"))


def test_a_short_failure_never_beats_a_long_solution() -> None:
    assert practice([turn(i) for i in range(1000)], SOLVED).total > practice([turn()], FAILED).total


def test_side_calls_of_a_client_cost_nothing() -> None:
    title = turn(1, "bad JSON", TurnKind.SIDE)
    assert practice([turn(), title], SOLVED) == practice([turn()], SOLVED)
    assert LIVE.score("s", [turn(), title], ()) == live()


def test_a_turn_cut_by_the_limit_of_tokens_is_not_a_broken_call() -> None:
    wrong = turn(broken="no end of turn")
    cut = replace(wrong, completion=replace(wrong.completion, finish=FinishReason.LENGTH))
    assert practice([cut], FAILED).total == practice([turn()], FAILED).total
    assert practice([wrong], FAILED).total < practice([cut], FAILED).total


def test_broken_calls_are_never_dropped_and_never_pay() -> None:
    honest, broken = practice([turn()], FAILED), practice([turn(broken="unclosed tag")], FAILED)
    part = next(part for part in broken.parts if part.name == "broken")
    assert broken.total < honest.total
    assert part.evidence == ("s/0",) and not part.censored


def test_tampering_costs_more_than_failing() -> None:
    assert practice([turn()], SOLVED, TAMPERED).total < practice([turn()], FAILED).total


def test_a_contradiction_left_out_of_the_final_message_costs() -> None:
    """Most sessions have nothing to report, hence no such signal and no such cost."""
    said, silent = signal(SignalKind.REPORTED), signal(SignalKind.REPORTED, 0.0)
    assert practice([turn()], SOLVED, said).total == practice([turn()], SOLVED).total
    quiet = practice([turn()], SOLVED, silent)
    assert quiet.total == pytest.approx(practice([turn()], SOLVED).total - PRACTICE.unreported)
    assert quiet.total > practice([turn()], FAILED).total
    assert next(part for part in quiet.parts if part.name == "unreported").evidence == (silent.id,)


def test_evidence_names_the_signals() -> None:
    parts = {part.name: part for part in practice([turn()], FAILED, TAMPERED).parts}
    assert parts["solved"].evidence == (FAILED.id, TAMPERED.id)
    assert parts["tampered"].evidence == (TAMPERED.id,)


def test_without_a_verdict_the_reward_is_censored() -> None:
    assert any(part.censored for part in practice([turn()]).parts)
    assert not any(part.censored for part in practice([turn()], FAILED).parts)


@pytest.mark.parametrize("definition", [PRACTICE, LIVE])
def test_a_void_session_has_no_reward(definition: LiveReward) -> None:
    ending = signal(SignalKind.ENDING, Ending.INFRASTRUCTURE)
    with pytest.raises(VoidSessionError, match="session s "):
        definition.score("s", [turn()], [ending])


def test_a_value_that_is_not_a_number_is_named() -> None:
    with pytest.raises(SignalValueError, match="'often'"):
        live(signal(SignalKind.COMPLAINT, "often"))


def test_live_outcomes_keep_their_order() -> None:
    kept, edited, reverted = (
        live(signal(kind)).total
        for kind in (SignalKind.EDIT_KEPT, SignalKind.EDIT_EDITED, SignalKind.EDIT_REVERTED)
    )
    abandoned = live(signal(SignalKind.ABANDONED)).total
    assert kept > edited > reverted and edited > abandoned
    assert live(signal(SignalKind.EDIT_KEPT), signal(SignalKind.COMPLAINT)).total < kept


def test_the_latest_outcome_counts() -> None:
    kept, reverted = signal(SignalKind.EDIT_KEPT, at=1.0), signal(SignalKind.EDIT_REVERTED, at=2.0)
    assert live(reverted, kept).total == live(reverted).total
    assert live(reverted, kept).parts[0].evidence == (reverted.id,)


def test_a_signal_of_zero_records_that_it_did_not_happen() -> None:
    assert live(signal(SignalKind.EDIT_REVERTED, 0.0)).parts[0].censored
    assert live(signal(SignalKind.COMPLAINT, 0.0)).total == live().total


def test_a_wrong_answer_is_an_outcome() -> None:
    right, wrong = live(signal(SignalKind.NO_EDIT_WANTED)), live(signal(SignalKind.NO_EDIT_WANTED, 0.0))
    assert right.total > 0 > wrong.total and not wrong.parts[0].censored


def test_silence_expires_when_the_window_is_over() -> None:
    ended = 101.0
    before = LIVE.score("s", [turn()], (), as_of=ended + LIVE.window_s - 1)
    after = LIVE.score("s", [turn()], (), as_of=ended + LIVE.window_s)
    assert before.parts[0].censored and not after.parts[0].censored and after.parts[0].value == 0


def test_a_question_costs_its_turn_and_pays_when_the_task_is_ambiguous() -> None:
    """Acting blindly is right half the time in an ambiguous task, and always in a clear one."""
    kept, reverted = signal(SignalKind.EDIT_KEPT), signal(SignalKind.EDIT_REVERTED)
    blindly = (live(kept, turns=2).total + live(reverted, turns=2).total) / 2
    assert live(kept, turns=3).total > blindly
    assert live(kept, turns=3).total < live(kept, turns=2).total


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_judgement_of_a_question_pays_nothing(value: float) -> None:
    question = signal(SignalKind.QUESTION_ANSWERED, value)
    assert live(question, signal(SignalKind.EDIT_KEPT)).total == live(signal(SignalKind.EDIT_KEPT)).total
    assert live(question).parts[0].censored


# Outcomes by edit

KINDS = {SignalKind.EDIT_KEPT: 1.0, SignalKind.EDIT_EDITED: 0.5, SignalKind.EDIT_REVERTED: -0.5}
stories = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(list(KINDS)), st.integers(0, 9)), min_size=1, max_size=8
)


def signals_of(story: list[tuple[str, SignalKind, int]]) -> list[Signal]:
    return [signal(kind, at=float(at), edit=edit, turn=1) for edit, kind, at in story]


@given(stories)
def test_the_outcome_is_the_mean_of_each_edits_latest_signal(
    story: list[tuple[str, SignalKind, int]],
) -> None:
    last: dict[str, tuple[int, int, float]] = {}
    for order, (edit, kind, at) in enumerate(story):
        last[edit] = max(last.get(edit, (-1, -1, 0.0)), (at, order, KINDS[kind]))
    expected = sum(value for _, _, value in last.values()) / len(last)
    part = live(*signals_of(story)).parts[0]
    assert part.value == pytest.approx(expected) and len(part.evidence) == len(last)


@given(stories, st.randoms(use_true_random=False))
def test_the_order_in_which_signals_arrive_does_not_matter(
    story: list[tuple[str, SignalKind, int]], random: Random
) -> None:
    distinct = [(edit, kind, at * 10 + n) for n, (edit, kind, at) in enumerate(story)]
    shuffled = signals_of(distinct)
    random.shuffle(shuffled)
    assert live(*shuffled).parts[0].value == pytest.approx(live(*signals_of(distinct)).parts[0].value)


def test_a_reverted_edit_is_not_made_good_by_a_kept_one() -> None:
    reverted = signal(SignalKind.EDIT_REVERTED, at=1.0, edit="a")
    kept = signal(SignalKind.EDIT_KEPT, at=2.0, edit="b")
    assert live(reverted, kept).parts[0].value == 0.25
    assert live(kept).parts[0].value == 1.0


def test_a_signal_about_a_turn_is_about_each_of_its_edits() -> None:
    accepted = signal(SignalKind.EDIT_KEPT, at=1.0, turn=3)
    first, second = (signal(SignalKind.EDIT_REVERTED, at=2.0, edit=edit, turn=3) for edit in "ab")
    assert live(accepted).parts[0].value == 1.0
    assert live(accepted, first, second).parts[0].value == -0.5
    assert live(accepted, signal(SignalKind.EDIT_REVERTED, at=2.0, edit="c", turn=4)).parts[0].value == 0.25


def test_a_signal_about_the_whole_session_weighs_as_one_edit() -> None:
    edits = [signal(SignalKind.EDIT_KEPT, edit=edit) for edit in "abc"]
    assert live(*edits, signal(SignalKind.ABANDONED)).parts[0].value == pytest.approx((3 - 0.5) / 4)


def test_a_session_that_ended_abandoned_is_an_outcome() -> None:
    ended = signal(SignalKind.ENDING, Ending.ABANDONED)
    assert live(ended).parts[0].value == LIVE.abandoned
    assert live(signal(SignalKind.ENDING, Ending.FINISHED)).parts[0].censored


# Maturity


def test_expired_silence_has_its_stated_worth() -> None:
    definition = replace(LIVE, silence=-0.1)
    part = definition.score("s", [turn()], (), as_of=101.0 + LIVE.window_s).parts[0]
    assert (part.state, part.value) == (PartState.EXPIRED, -0.1)
    assert definition.score("s", [turn()], ()).parts[0].state is PartState.CENSORED


def test_signals_after_as_of_do_not_count() -> None:
    kept, reverted = signal(SignalKind.EDIT_KEPT, at=200.0), signal(SignalKind.EDIT_REVERTED, at=300.0)
    at = {when: LIVE.score("s", [turn()], (kept, reverted), as_of=when).parts[0] for when in (199, 200, 300)}
    assert [at[when].value for when in (199, 200, 300)] == [0.0, 1.0, -0.5]
    assert at[199].censored and at[200].state is PartState.OBSERVED


def test_every_weight_changes_the_hash() -> None:
    hashes = {
        LIVE.hash(),
        PRACTICE.hash(),
        replace(LIVE, kept=2.0).hash(),
        replace(PRACTICE, broken=0.0).hash(),
    }
    assert len(hashes) == 4
    assert LiveReward().hash() == LIVE.hash()


@pytest.mark.parametrize("definition", [PRACTICE, LIVE])
def test_many_tokens_in_one_turn_cost_as_much_as_in_several(definition: LiveReward) -> None:
    """Fifteen hundred tokens cost as much as three more turns, however they are divided into turns."""

    def long(index: int, tokens: int) -> Turn:
        completion = Completion(
            ids=(3,) * tokens, logprobs=(-0.1,) * tokens, versions=(1,) * tokens, finish=FinishReason.STOP
        )
        return replace(turn(index), completion=completion)

    def price(*turns: Turn) -> float:
        return definition.score("s", turns, ()).parts[-1].value

    assert price(long(0, 1500)) < price(long(0, 10))
    assert price(long(0, 1500)) == pytest.approx(price(*(long(i, 0) for i in range(4))))
    assert price(long(0, 10**6)) > -definition.effort / (definition.effort_k * (definition.effort_q - 1))
