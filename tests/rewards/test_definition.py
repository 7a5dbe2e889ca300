"""Covers rewards/definition.py and the parts it adds up, rewards/broken.py, rewards/solved.py,
rewards/tamper.py and rewards/reported.py, which read signals by rewards/signals.py.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.builders import signal, turn

from ostinato.rewards.definition import PRACTICE
from ostinato.rewards.effort import concave_effort
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.signals import SignalValueError, VoidSessionError
from ostinato.types import Ending, FinishReason, Grade, Reward, Signal, SignalKind, Turn, TurnKind

SOLVED = signal(SignalKind.HIDDEN_TESTS)
FAILED = signal(SignalKind.HIDDEN_TESTS, 0.0)
TAMPERED = signal(SignalKind.TAMPERED)


def practice(turns: list[Turn], *signals: Signal) -> Reward:
    return PRACTICE.score("s", turns, signals)


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


def signals_of(story: list[tuple[str, SignalKind, int]]) -> list[Signal]:
    return [signal(kind, at=float(at), edit=edit, turn=1) for edit, kind, at in story]


# Maturity


def test_side_calls_of_a_client_cost_nothing() -> None:
    title = turn(1, "bad JSON", TurnKind.SIDE)
    assert practice([turn(), title], SOLVED) == practice([turn()], SOLVED)
    assert LIVE.score("s", [turn(), title], ()) == LIVE.score("s", [turn()], ())


def test_a_void_session_has_no_reward() -> None:
    ending = signal(SignalKind.ENDING, Ending.INFRASTRUCTURE)
    for score in (PRACTICE.score, LIVE.score):
        with pytest.raises(VoidSessionError, match="session s "):
            score("s", [turn()], [ending])


def test_every_weight_changes_the_hash() -> None:
    assert PRACTICE.hash() == "7bc64a382493" and replace(PRACTICE, broken=0.0).hash() != PRACTICE.hash()


def test_many_tokens_in_one_turn_cost_as_much_as_in_several() -> None:
    """Fifteen hundred tokens cost as much as three more turns, however they are divided into turns."""

    def price(*turns: Turn) -> float:
        return PRACTICE.score("s", turns, ()).parts[-1].value

    def live_price(*turns: Turn) -> float:
        return LIVE.score("s", turns, ()).parts[-1].value

    for of in (price, live_price):
        assert of(turn(0, tokens=1500)) < of(turn(0, tokens=10))
        assert of(turn(0, tokens=1500)) == pytest.approx(of(*(turn(i, tokens=0) for i in range(4))))
        bound = PRACTICE.effort / (PRACTICE.effort_k * (PRACTICE.effort_q - 1))
        assert of(turn(0, tokens=10**6)) > -bound
