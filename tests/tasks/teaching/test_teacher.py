from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ostinato.tasks.pebble import KINDS, SPLITS, Pebble, generate, sample
from ostinato.tasks.teaching.demonstrate import Teacher
from ostinato.tasks.teaching.habits import BROKEN_SHARE, HABITS, SLIP_SHARE, move_on
from ostinato.tasks.teaching.visible_state import SUMMARY_QUERY, visible_state

Play = Callable[[Pebble, int], Any]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_session_ends_with_a_message_within_ten_turns(kind: str, split: str, play: Play) -> None:
    limit = 12 if split == "larger" else 10
    for seed in range(40):
        workbench = play(generate(kind, split, seed), seed)
        assert sum(message["role"] == "assistant" for message in workbench.messages) <= limit
        assert workbench.final.startswith(("done", workbench.pebble.targets[0].name))


def test_the_mixture_solves_about_half_of_the_fixes(play: Play) -> None:
    played = [play(generate("fix", "train", seed), seed) for seed in range(1500)]
    assert 0.45 < sum(w.solved for w in played) / len(played) < 0.60
    assert 0.03 < sum(w.tampered for w in played) / len(played) < 0.09
    assert 0.03 < sum("ask_user" in w.calls for w in played) / len(played) < 0.09
    assert 0.002 < sum(w.broken for w in played) / len(played) < 0.03


def test_a_blind_guess_rarely_succeeds(play: Play) -> None:
    played = [play(generate("fix", "train", seed), seed) for seed in range(2500)]
    blind = [w for w in played if w.calls == ["read", "edit"]]
    assert 0.04 < sum(w.solved for w in blind) / len(blind) < 0.12


@pytest.mark.parametrize("kind", KINDS)
def test_habits_are_drawn_by_their_shares(kind: str) -> None:
    n = 1500
    pebble = generate(kind, "train", 0)
    counts = Counter(Teacher(pebble, Random(seed)).habit for seed in range(n))
    for habit, share in HABITS[kind]:
        assert counts[habit] / n == pytest.approx(share, abs=0.05)


def test_a_broken_call_is_followed_by_the_rest_of_the_session(play: Play) -> None:
    broken = [w for w in (play(sample("train", seed), seed) for seed in range(1200)) if w.broken]
    assert 0 < len(broken) < 4 * 1200 * BROKEN_SHARE
    assert all(w.broken == 1 for w in broken)
    assert any(w.calls for w in broken)


def test_a_slip_is_followed_by_the_right_edit(play: Play) -> None:
    played = [play(generate("fix", "train", seed), seed) for seed in range(600)]
    slipped = [w for w in played if w.slips]
    edits = sum(w.calls.count("edit") - w.slips for w in played)
    assert sum(w.slips for w in slipped) / edits == pytest.approx(SLIP_SHARE, abs=0.025)
    for workbench in slipped:
        for at, message in enumerate(workbench.messages):
            if message["content"] == "error: old_string not found":
                assert workbench.messages[at + 2]["content"] == "ok"
    assert any(w.solved for w in slipped)


def test_the_same_seed_makes_the_same_session(play: Play) -> None:
    pebble = sample("train", 8)
    assert play(pebble, 1).messages == play(pebble, 1).messages


def test_the_teacher_ends_with_done() -> None:
    teacher = Teacher(generate("question", "train", 0), Random(0))
    texts = [teacher.act([]) for _ in range(12)]
    assert texts[-1] == "done"


QUERY = {"role": "user", "content": f"{SUMMARY_QUERY}: go on alone"}


def test_a_teacher_summarises_when_the_harness_asks_and_goes_on_from_there(bench: Any) -> None:
    """After each summary the teacher sees the request and nothing of the work, so it reads again."""
    for seed in range(30):
        pebble = generate("carry", "train", seed)
        workbench, teacher = bench(pebble), Teacher(pebble, Random(seed))
        teacher.habit, teacher._texts = move_on, move_on(teacher._scene)
        first: list[Any] = list(workbench.messages)
        going, summaries = True, 0
        while going:
            going = workbench.take(teacher.act(workbench.messages))
            if going and len(workbench.messages) > len(first) + 4:
                summary = teacher.act([*workbench.messages, QUERY])
                assert summary.startswith("Summary:\n") and " had: " in summary
                workbench.messages = list(first)
                summaries += 1
        assert workbench.solved and summaries >= 2


def test_what_a_summary_tells_was_read_before() -> None:
    pebble = generate("carry", "train", 1)
    teacher = Teacher(pebble, Random(0))
    assert teacher.act([QUERY]) == "Summary:\nedited: nothing"


def test_the_line_of_token_use_is_no_part_of_a_result(bench: Any, play: Play) -> None:
    messages = play(generate("fix", "train", 3), 1).messages
    marked = [
        {**message, "content": f"{message['content']}\n[12 of 99 tokens used]"}
        if message["role"] == "tool"
        else message
        for message in messages
    ]
    assert visible_state(marked) == visible_state(messages)
