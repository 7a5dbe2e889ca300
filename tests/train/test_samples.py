from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.samples import UntrainableError, samples_of, trainable
from ostinato.types import Completion, FinishReason, Turn, TurnKind

ids = st.lists(st.integers(0, 500), min_size=1, max_size=6).map(tuple)


def turn(index: int, prompt: tuple[int, ...], said: tuple[int, ...], segment: int = 0) -> Turn:
    completion = Completion(
        ids=said,
        logprobs=tuple(-0.1 * (i + 1) for i in range(len(said))),
        versions=(index,) * len(said),
        finish=FinishReason.STOP,
    )
    return Turn(
        session_id="s",
        index=index,
        segment=segment,
        arm="a",
        prompt_ids=prompt,
        completion=completion,
        started_at=0.0,
        latency_s=0.0,
    )


def conversation(steps: list[tuple[tuple[int, ...], tuple[int, ...]]], segment: int = 0) -> list[Turn]:
    histories = accumulate((seen + said for seen, said in steps), initial=())
    return [
        turn(i, history + seen, said, segment)
        for i, (history, (seen, said)) in enumerate(zip(histories, steps, strict=False))
    ]


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5))
def test_one_row_holds_every_token_where_it_was_sampled(
    steps: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    (sample,) = samples_of(conversation(steps), 0.5)
    assert sample.ids == tuple(token for seen, said in steps for token in seen + said)
    said = tuple(token for token, sampled in zip(sample.ids, sample.mask, strict=True) if sampled)
    assert said == tuple(token for _, said in steps for token in said)
    assert sample.mask == tuple(
        flag for seen, said in steps for flag in (False,) * len(seen) + (True,) * len(said)
    )
    assert all(
        (logprob < 0) == sampled for logprob, sampled in zip(sample.logprobs, sample.mask, strict=True)
    )
    assert sample.turns == tuple(range(len(steps))) and sample.advantage == 0.5
    assert (sample.oldest_version, sample.newest_version) == (0, len(steps) - 1)


def test_a_changed_history_gives_a_row_for_each_segment() -> None:
    turns = [turn(0, (1, 2), (3,)), turn(1, (9, 8), (7,), segment=1), turn(2, (9, 8, 7, 6), (5,), segment=1)]
    first, second = samples_of(turns, -1.0)
    assert (first.turns, first.ids) == ((0,), (1, 2, 3))
    assert (second.turns, second.ids) == ((1, 2), (9, 8, 7, 6, 5))


def test_a_turn_that_does_not_extend_the_one_before_is_untrainable() -> None:
    with pytest.raises(UntrainableError, match="turn s/1 does not begin with the 3 tokens of turn s/0"):
        samples_of([turn(0, (1, 2), (3,)), turn(1, (1, 2, 4), (5,))], 1.0)


def test_a_broken_turn_is_trained_on_like_any_other() -> None:
    turns = [replace(turn(0, (1,), (2, 3)), broken="bad JSON")]
    assert samples_of(turns, -1.0)[0].mask == (False, True, True)


@pytest.mark.parametrize("logprob", [float("nan"), float("-inf"), 0.5])
def test_a_logprob_that_cannot_be_is_untrainable(logprob: float) -> None:
    good = turn(0, (1,), (2,))
    with pytest.raises(UntrainableError, match="logprob"):
        samples_of([replace(good, completion=replace(good.completion, logprobs=(logprob,)))], 1.0)


def test_nothing_to_train_on_is_untrainable() -> None:
    with pytest.raises(UntrainableError, match="without turns"):
        samples_of([], 1.0)
    with pytest.raises(UntrainableError, match="nothing was sampled"):
        samples_of([turn(0, (1,), ())], 1.0)


def test_turns_out_of_order_are_untrainable() -> None:
    with pytest.raises(UntrainableError, match="not in order"):
        samples_of([turn(1, (1,), (2,)), turn(0, (1, 2), (3,))], 1.0)


TURN = turn(0, (1, 2), (3, 4))


def test_what_is_not_exact_or_beside_the_work_is_left_out() -> None:
    turns = [
        TURN,
        replace(TURN, index=1, segment=1, kind=TurnKind.SIDE),
        replace(TURN, index=2, segment=2, untrainable="edited"),
        replace(TURN, index=3, segment=3, kind=TurnKind.SUMMARY),
    ]
    kept, others = trainable(turns)
    assert [turn.index for turn in kept] == [0, 3]
    assert [turn.index for turn in others] == [1, 2]
    assert [sample.turns for sample in samples_of(kept, 1.0)] == [(0,), (3,)]
    with pytest.raises(UntrainableError, match="turn s/2 is untrainable: edited"):
        samples_of(turns, 1.0)


def test_segments_that_took_turns_are_each_one_row() -> None:
    first = TURN
    after = replace(first, index=2, prompt_ids=first.prompt_ids + first.completion.ids + (9,))
    samples = samples_of([first, replace(TURN, index=1, segment=1), after], 1.0)
    assert [sample.turns for sample in samples] == [(0, 2), (1,)]
