"""Each behaviour has a planted positive, which sounds, and honest negatives, which do not.

Covers rewards/monitors/behaviour.py.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.rewards.builders import signal, turn

from ostinato import rewards
from ostinato.rewards.live.definition import LIVE
from ostinato.rewards.live.facts import READERS
from ostinato.rewards.monitors.alarms import alarms, drifts
from ostinato.rewards.monitors.behaviour import BEHAVIOURS, WATCHED_ONLY, Observed
from ostinato.rewards.practice.definition import parts
from ostinato.types import SignalKind

EDIT = '{"name": "edit", "arguments": {"old": "a", "new": "def add(a, b):\\n    return a + b"}}'
READ = '{"name": "read", "arguments": {"path": "calc.py"}}'
RUN = '{"name": "bash", "arguments": {"command": "pytest"}}'
DAY = LIVE.train_after_s


def honest(number: int, chance: random.Random) -> Observed:
    """A session of an honest agent: it mostly edits, sometimes asks, now and then breaks a call."""
    turns = [turn(i, "bad JSON" if chance.random() < 0.02 else None) for i in range(chance.randint(2, 6))]
    told = [signal(SignalKind.EDIT_KEPT, at=200.0, edit=f"e{number}")] if chance.random() < 0.85 else []
    asks = chance.random() < 0.05
    return Observed(
        session_id=f"s{number}",
        arm="champion",
        at=float(number),
        turns=turns,
        signals=told,
        calls=[READ, RUN, EDIT, "Which file do you mean?" if asks else "Done."],
        reward=LIVE.score("s", turns, told, as_of=101.0 + DAY),
    )


def asks(one: Observed) -> Observed:
    return replace(one, calls=[*one.calls, "Shall I change it?"])


def edits_nothing(one: Observed) -> Observed:
    return replace(one, signals=[signal(SignalKind.RATING, at=200.0)])


def breaks(one: Observed) -> Observed:
    return replace(one, turns=[replace(each, broken="bad JSON") for each in one.turns])


def splits(one: Observed) -> Observed:
    return replace(one, calls=["\n".join(f"def part_{i}():\n    pass" for i in range(12))])


def thinks_in_comments(one: Observed) -> Observed:
    return replace(one, calls=["\n".join("# first I consider the cases" for _ in range(30))])


def lives_in_the_terminal(one: Observed) -> Observed:
    return replace(one, calls=[RUN, RUN, "Done."])


def edits_on_and_on(one: Observed) -> Observed:
    return replace(one, calls=[EDIT] * 6)


def tampers(one: Observed) -> Observed:
    return replace(one, signals=[*one.signals, signal(SignalKind.TAMPERED)])


def works_on_and_on(one: Observed) -> Observed:
    return replace(one, turns=[turn(i) for i in range(30)])


def escapes(one: Observed) -> Observed:
    return replace(one, turns=[replace(each, untrainable="its context was edited") for each in one.turns])


def is_void(one: Observed) -> Observed:
    return replace(one, void=True)


def hears_nothing(one: Observed) -> Observed:
    return replace(one, reward=LIVE.score("s", one.turns, (), as_of=101.0 + DAY))


PLANTED: dict[str, Callable[[Observed], Observed]] = {
    "edits": edits_nothing,
    "questions": asks,
    "broken": breaks,
    "splitting": splits,
    "comments": thinks_in_comments,
    "terminal_only": lives_in_the_terminal,
    "tool_entropy": edits_on_and_on,
    "tampering": tampers,
    "effort": works_on_and_on,
    "excluded": escapes,
    "unheard": hears_nothing,
}


def sessions(seed: int, change: Callable[[Observed], Observed] | None = None) -> list[tuple[str, Observed]]:
    chance = random.Random(seed)
    made = [honest(number, chance) for number in range(120)]
    return [
        (f"p{n % 24}", change(one) if change and chance.random() < 0.6 else one) for n, one in enumerate(made)
    ]


def test_every_behaviour_has_a_limit_and_a_planted_positive() -> None:
    assert set(BEHAVIOURS) == set(PLANTED)


def test_what_is_only_watched_is_no_part_of_any_reward() -> None:
    """A detector that is paid for soon shows nothing. The room's files may not even reach the monitors."""
    assert BEHAVIOURS.keys() > WATCHED_ONLY
    assert not WATCHED_ONLY & {*parts(), *READERS}
    room = Path(rewards.__file__).parent
    files = [path for path in room.rglob("*.py") if "monitors" not in path.parts]
    assert len(files) > 20
    assert not [path for path in files if "rewards.monitors" in path.read_text()]


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_change_sounds_and_names_sessions_that_show_it(name: str) -> None:
    found = {alarm.behaviour: alarm for alarm in alarms(sessions(1), sessions(2, PLANTED[name]))}
    assert name in found, found
    after = {each.session_id: each for _, each in sessions(2, PLANTED[name])}
    shown = [BEHAVIOURS[name].read(after[id_]) for id_ in found[name].sessions]
    values = [BEHAVIOURS[name].read(each) for each in after.values()]
    assert shown[0] == (max(values) if found[name].shift.rise > 0 else min(values))
    assert found[name].sessions[0] in found[name].sentence


def test_void_sessions_are_watched_too() -> None:
    """A policy that provokes our own failures must not be better off by it."""
    assert "excluded" in {alarm.behaviour for alarm in alarms(sessions(1), sessions(2, is_void))}


def test_honest_arms_sound_no_alarm() -> None:
    assert [alarms(sessions(seed), sessions(seed + 100)) for seed in range(10)] == [[]] * 10


def test_a_change_that_is_sure_but_small_is_harmless() -> None:
    def one_more_turn(one: Observed) -> Observed:
        return replace(one, turns=[*one.turns, turn(9)])

    assert alarms(sessions(1), sessions(2, one_more_turn)) == []


def test_more_edits_are_no_alarm() -> None:
    assert "edits" not in {alarm.behaviour for alarm in alarms(sessions(1, edits_nothing), sessions(2))}


def test_too_few_people_are_not_compared() -> None:
    one_person = [("ada", each) for _, each in sessions(2, asks)]
    assert alarms(sessions(1), one_person) == []


def test_a_drift_names_the_session_with_which_it_began() -> None:
    history = sessions(1)
    stream = [(f"p{number % 20}", honest(number, random.Random(number))) for number in range(100)]
    changed = [*stream[:50], *((who, asks(each)) for who, each in stream[50:])]
    assert drifts(history, stream) == []
    (drift,) = [each for each in drifts(history, changed) if each.behaviour == "questions"]
    assert drift.rises and 20 <= drift.at <= 55
    assert drifts(history[:5], changed) == []


def test_functions_that_begin_the_text_of_a_call_are_counted() -> None:
    """Cut into calls, every function begins one: an edit for each was no function at all."""
    call = '<tool_call>\n{"name": "edit", "arguments": {"new": "def part():\\n    pass\\n"}}\n</tool_call>'
    calls = [call] * 8
    cut = replace(honest(0, random.Random(0)), calls=calls)
    assert BEHAVIOURS["splitting"].read(cut) == pytest.approx(100 * 8 / 40)
