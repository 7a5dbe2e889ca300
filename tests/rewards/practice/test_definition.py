"""Covers rewards/practice/definition.py, rewards/definition.py and the parts that are added up:
rewards/parts/broken.py, rewards/parts/outcome.py, rewards/parts/tamper.py and rewards/parts/reported.py,
which read signals by rewards/signals.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.builders import call, renderer, session, signal, turn

from ostinato.config import ConfigError
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.parts.effort import EffortPrice, concave_effort
from ostinato.rewards.practice.definition import (
    DEFAULT,
    FAULTS_OF_PASSING,
    PRACTICE,
    PracticeDefinition,
    PracticeReward,
    parts,
    read_practice_definition,
)
from ostinato.rewards.signals import SignalValueError, VoidSessionError
from ostinato.types import Ending, FinishReason, Grade, Reward, RewardPart, Signal, SignalKind, Turn, TurnKind

SOLVED = signal(SignalKind.HIDDEN_TESTS)
FAILED = signal(SignalKind.HIDDEN_TESTS, 0.0)
TAMPERED = signal(SignalKind.TAMPERED)


def practice(turns: list[Turn], *signals: Signal) -> Reward:
    return reward().score("s", turns, signals)


def reward(definition: PracticeDefinition = PRACTICE) -> PracticeReward:
    return PracticeReward(definition, renderer())


def part(reward: Reward, name: str) -> RewardPart:
    return next(part for part in reward.parts if part.name == name)


@given(st.integers(0, 12), st.booleans(), st.booleans(), st.integers(0, 2))
def test_practice_is_the_documented_sum(turns: int, works: bool, tampered: bool, broken: int) -> None:
    made = [turn(i, "bad JSON" if i < broken else None) for i in range(turns + broken)]
    reward = practice(
        made, signal(SignalKind.HIDDEN_TESTS, float(works)), signal(SignalKind.TAMPERED, float(tampered))
    )
    effort = concave_effort((turns + broken) * (0.9 + 1 / 500), k=0.3, q=1.5)
    expected = (works and not tampered) - 0.5 * broken - 0.2 * tampered - 0.02 * effort
    assert reward.total == pytest.approx(expected)


def test_a_pass_below_the_lowest_grade_is_worth_nothing() -> None:
    forgeable = signal(SignalKind.GRADE, Grade.FORGEABLE.value)
    guarded = signal(SignalKind.GRADE, Grade.GUARDED.value)
    for low in (forgeable, guarded):
        solved = {part.name: part for part in practice([turn()], SOLVED, low).parts}["solved"]
        assert (solved.value, solved.evidence) == (0.0, (SOLVED.id, low.id))
        assert practice([turn()], SOLVED, low).total == practice([turn()], FAILED).total
    judged = practice([turn()], SOLVED, signal(SignalKind.GRADE, Grade.JUDGED.value))
    assert judged.total == practice([turn()], SOLVED).total
    accepting = replace(PRACTICE, lowest_grade=Grade.FORGEABLE)
    assert (
        reward(accepting).score("s", [turn()], [SOLVED, forgeable]).total == practice([turn()], SOLVED).total
    )
    assert accepting.hash() != PRACTICE.hash()
    lenient = replace(PRACTICE, lowest_grade=Grade.GUARDED)
    assert reward(lenient).score("s", [turn()], [SOLVED, guarded]).total == practice([turn()], SOLVED).total
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
    assert quiet.total == pytest.approx(practice([turn()], SOLVED).total + PRACTICE.weights["unreported"])
    assert quiet.total > practice([turn()], FAILED).total
    assert next(part for part in quiet.parts if part.name == "unreported").evidence == (silent.id,)


def test_evidence_names_the_signals() -> None:
    parts = {part.name: part for part in practice([turn()], FAILED, TAMPERED).parts}
    assert parts["solved"].evidence == (FAILED.id, TAMPERED.id)
    assert parts["tampered"].evidence == (TAMPERED.id,)


def test_without_a_verdict_the_reward_is_censored() -> None:
    assert any(part.censored for part in practice([turn()]).parts)
    assert not any(part.censored for part in practice([turn()], FAILED).parts)


def test_side_calls_of_a_client_cost_nothing() -> None:
    title = turn(1, "bad JSON", TurnKind.SIDE)
    assert practice([turn(), title], SOLVED) == practice([turn()], SOLVED)
    assert LIVE.score("s", [turn(), title], ()) == LIVE.score("s", [turn()], ())


def test_a_void_session_has_no_reward() -> None:
    ending = signal(SignalKind.ENDING, Ending.INFRASTRUCTURE)
    with pytest.raises(VoidSessionError, match="session s "):
        reward().score("s", [turn()], [ending])
    assert LIVE.score("s", [turn()], [ending]) == LIVE.score("s", [turn()], ()), "any client may say it later"


def test_every_weight_changes_the_hash_and_their_order_does_not() -> None:
    assert PRACTICE.hash() == "d9336a9b2746"
    for name, weight in PRACTICE.weights.items():
        changed = replace(PRACTICE, weights={**PRACTICE.weights, name: weight / 2})
        assert changed.hash() != PRACTICE.hash()
    assert replace(PRACTICE, effort=EffortPrice(outputs=0.0)).hash() != PRACTICE.hash()
    backwards = dict(reversed(PRACTICE.weights.items()))
    assert replace(PRACTICE, weights=backwards).hash() == PRACTICE.hash()


def test_many_tokens_in_one_turn_cost_as_much_as_in_several() -> None:
    """Fifteen hundred tokens cost as much as three more turns, however they are divided into turns."""

    def price(*turns: Turn) -> float:
        return part(practice(list(turns)), "effort").value

    def live_price(*turns: Turn) -> float:
        return part(LIVE.score("s", turns, ()), "effort").value

    for of, turns in ((price, 3 / 0.9), (live_price, 3)):
        assert of(turn(0, tokens=1500)) < of(turn(0, tokens=10))
        several = of(*(turn(i, tokens=0) for i in range(1 + int(turns))))
        assert of(turn(0, tokens=1500)) == pytest.approx(several, rel=0.05)
        assert of(turn(0, tokens=10**5)) > -0.02 / (0.3 * 0.5)


# The definition is declared


def defined(tmp_path: Path, text: str) -> PracticeDefinition:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n' + text)
    return read_practice_definition(path)


def test_the_file_that_ships_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "again.toml"
    path.write_text(PRACTICE.text())
    assert read_practice_definition(path) == PRACTICE == read_practice_definition(DEFAULT)
    assert PRACTICE.weights.keys() == set(parts()), "the shipped definition names every part"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[weights]\nbroken = -0.5\n", "mine can pay for nothing: weights.solved is 0.0"),
        ("[weights]\nsolved = -1.0\n", "mine can pay for nothing"),
        ("[weights]\nsolved = 1.0\nvibes = 0.1\n", "weights.vibes is no part: use solved, broken"),
        ("[weights]\nsolved = 1.0\nsplitting = -0.1\n", "weights.splitting is no part"),
        ("[weights]\nsolved = 1.0\nbroken = 0.5\n", "weights.broken is 0.5, which would pay for a fault"),
        ("[weights]\nsolved = 1.0\nstyle = -0.2\n", "weights.style is -0.2: make it at least -0.1"),
        ("[weights]\nsolved = 0.5\nscope = -0.6\n", "cost up to 0.6 and a pass pays 0.5"),
        ("[weights]\nsolved = inf\n", "weights.solved is inf: make it finite"),
        ("[weights]\nsolved = 1.0\n[effort]\nfinal = 0.0\n", "no text cheaper than thinking"),
        ("[weights]\nsolved = 1.0\n[effort]\nturn = 1.0\n", "unknown key 'effort.turn'"),
        ('lowest_grade = "sworn"\n[weights]\nsolved = 1.0\n', "lowest_grade"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        defined(tmp_path, text)


def test_a_part_without_a_weight_is_left_out(tmp_path: Path) -> None:
    short = defined(tmp_path, "[weights]\nsolved = 2.0\n")
    parts = reward(short).score("s", [turn(broken="bad JSON")], [SOLVED]).parts
    assert [(each.name, each.value) for each in parts] == [("solved", 2.0)]


SPOILT = [
    signal(SignalKind.PATCH, "--- a/x\n+++ b/x\n@@ -0,0 +1,4 @@\n" + "+x  \n" * 4),
    signal(SignalKind.BEYOND, 10.0**6),
]
PLAN = call("todo_write", todos=[{"content": "a", "status": "pending"}])
READ = call("read", path="a.py")


def test_small_faults_count_on_passing_work_alone() -> None:
    """Failing must not be drawn to tidiness, nor passing be worse off than failing."""
    turns = session((PLAN, ["ok"]), (READ, ["x"]), (READ, ["x"]), ("done", []))
    passed, failed = practice(turns, SOLVED, *SPOILT), practice(turns, FAILED, *SPOILT)
    for name in FAULTS_OF_PASSING:
        assert part(failed, name).value == 0 and part(passed, name).evidence
        assert part(passed, name).value < 0
    assert failed.total == practice(turns, FAILED).total < passed.total < practice(turns, SOLVED).total


def test_a_patch_that_does_nothing_gains_nothing_by_being_small() -> None:
    """The exploit of a price on size: the smallest patch of all is an empty one, and it fails."""
    nothing, honest = signal(SignalKind.BEYOND, 0.0), signal(SignalKind.BEYOND, 3.0)
    idle = practice(session(("done", [])), FAILED, nothing)
    works = practice(session((READ, ["x"]), (READ, ["x"]), ("done", [])), SOLVED, honest)
    assert idle.total == practice(session(("done", [])), FAILED).total < 0 < works.total


def test_a_lie_costs_whether_the_work_passed_or_not() -> None:
    lie, honest = session(("all tests pass", [])), session(("all tests fail", []))
    for verdict in (SOLVED, FAILED):
        assert part(practice(lie, verdict), "false_claim").value == PRACTICE.weights["false_claim"]
        assert part(practice(honest, verdict), "false_claim").value == 0


def test_a_question_costs_where_it_was_needless() -> None:
    needless = signal(SignalKind.QUESTION_ANSWERED, 0.0)
    needed = signal(SignalKind.QUESTION_ANSWERED, 1.0)
    assert practice([turn()], SOLVED, needed).total == practice([turn()], SOLVED).total
    assert practice([turn()], SOLVED, needless).total < practice([turn()], SOLVED).total


def test_a_pebbles_effort_costs_what_it_did_before_there_were_six_counts() -> None:
    """Rewards of short sessions stay comparable: x was turns + sampled tokens / 500."""
    edit = call("edit", path="calc.py", old_string="    return a - b", new_string="    return a + b")
    run = (call("bash", command="pytest"), ["F..\nFAILED test_calc.py::test_alpha - assert 1 == 5"])
    turns = session(run, (READ, ["def alpha(a, b):\n    return a - b\n"]), (edit, ["ok"]), run, ("done", []))
    x = len(turns) + sum(len(turn.completion.ids) for turn in turns) / 500
    before = -0.02 * concave_effort(x, k=0.3, q=1.5)
    assert part(practice(turns), "effort").value == pytest.approx(before, abs=0.002)
