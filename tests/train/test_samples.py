from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.train.samples import UntrainableError, rows_of, samples_of, trainable
from ostinato.types import Completion, FinishReason, Routes, Sampling, Turn, TurnKind

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
    with pytest.raises(UntrainableError, match="turns s/0 and s/1 of segment 0: the later"):
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
    with pytest.raises(UntrainableError, match="no turn"):
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
    assert {reason: [turn.index for turn in some] for reason, some in others.items()} == {
        "a call beside the work": [1],
        "edited": [2],
    }
    assert [sample.turns for sample in samples_of(kept, 1.0)] == [(0,), (3,)]
    with pytest.raises(UntrainableError, match="turn s/2: edited"):
        samples_of(turns, 1.0)


def test_a_segment_with_nothing_but_a_masked_summary_has_no_row() -> None:
    alone = replace(TURN, index=1, segment=1, kind=TurnKind.SUMMARY)
    assert [sample.turns for sample in samples_of([TURN, alone], 1.0)] == [(0,), (1,)]
    assert [sample.turns for sample in samples_of([TURN, alone], 1.0, summaries=False)] == [(0,)]
    assert samples_of([alone], 1.0, summaries=False) == []


def test_segments_that_took_turns_are_each_one_row() -> None:
    first = TURN
    after = replace(first, index=2, prompt_ids=first.prompt_ids + first.completion.ids + (9,))
    samples = samples_of([first, replace(TURN, index=1, segment=1), after], 1.0)
    assert [sample.turns for sample in samples] == [(0, 2), (1,)]


BENT = [
    (Sampling(temperature=0.0), "sampled greedily"),
    (Sampling(top_p=0.9), "sampled with top_p"),
    (Sampling(top_k=40, min_p=0.05), "sampled with top_k, min_p"),
    (
        Sampling(presence_penalty=0.5, frequency_penalty=0.1),
        "sampled with presence_penalty, frequency_penalty",
    ),
    (Sampling(repetition_penalty=1.1), "sampled with repetition_penalty"),
]


@pytest.mark.parametrize(("sampling", "reason"), BENT)
def test_what_the_trainer_cannot_score_is_untrainable_for_a_reason(sampling: Sampling, reason: str) -> None:
    kept, others = trainable([TURN, replace(TURN, index=1, segment=1, sampling=sampling)])
    assert [turn.index for turn in kept] == [0]
    assert list(others) == [reason]
    with pytest.raises(UntrainableError) as caught:
        samples_of(others[reason], 1.0)
    assert caught.value.reason == reason


def test_a_row_says_at_which_temperature_each_token_was_sampled() -> None:
    hot = replace(TURN, sampling=Sampling(temperature=0.7, seed=3))
    cold = turn(1, (1, 2, 3, 4, 5), (6,))
    cold = replace(cold, sampling=Sampling(temperature=0.3))
    (sample,) = samples_of([hot, cold], 1.0)
    assert sample.temperatures == (1.0, 1.0, 0.7, 0.7, 1.0, 0.3)


def test_a_greedy_turn_between_others_is_context_and_not_trained() -> None:
    turns = conversation([((1,), (2,)), ((3,), (4,)), ((5,), (6,))])
    turns[1] = replace(turns[1], sampling=Sampling(temperature=0.0))
    kept, _ = trainable(turns)
    (sample,) = samples_of(kept, 1.0)
    assert sample.ids == (1, 2, 3, 4, 5, 6) and sample.turns == (0, 2)
    assert sample.mask == (False, True, False, False, False, True)


def test_a_teacher_may_have_been_greedy() -> None:
    (row,) = rows_of([replace(TURN, sampling=Sampling(temperature=0.0))])
    assert row.mask == (False, False, True, True)


def routed(given: Turn, width: int, salt: int = 0) -> Turn:
    """The turn with experts that tell the place of the token and `salt`."""
    tokens = len(given.prompt_ids) + len(given.completion.ids) - 1
    data = b"".join(((salt << 8) + place).to_bytes(2, "little") * width for place in range(tokens))
    return replace(given, completion=replace(given.completion, routes=data))


@given(st.lists(st.tuples(ids, ids, st.booleans()), min_size=1, max_size=5), st.integers(1, 3))
def test_each_token_has_the_routes_of_the_earliest_turn_that_recorded_them(
    steps: list[tuple[tuple[int, ...], tuple[int, ...], bool]], width: int
) -> None:
    turns = conversation([(seen, said) for seen, said, _ in steps])
    for i, (*_, told) in enumerate(steps):
        turns[i] = routed(turns[i], width, i + 1) if told else turns[i]
    (sample,) = samples_of(turns, 0.5)
    expected: list[int] = []
    for i, (each, (*_, told)) in enumerate(zip(turns, steps, strict=True)):
        if told:
            computed = len(each.prompt_ids) + len(each.completion.ids) - 1
            expected += [((i + 1) << 8) + place for place in range(len(expected), computed)]
    data = b"".join(number.to_bytes(2, "little") * width for number in expected)
    assert sample.routes == (Routes(data=data, width=width) if data else None)


def test_a_sampled_token_is_predicted_with_the_routes_of_its_own_turn() -> None:
    first, second = conversation([((1, 2), (3, 4)), ((5,), (6, 7))])
    (sample,) = samples_of([routed(first, 1, 1), routed(second, 1, 2)], 0.0)
    assert sample.routes is not None
    assert sample.routes.data[1::2] == bytes([1, 1, 1, 2, 2, 2])  # 3 came after 2, 6 after 5


@pytest.mark.parametrize("routes", [b"", bytes(2), bytes(8)])
def test_routes_that_are_not_those_of_the_tokens_are_refused(routes: bytes) -> None:
    (only,) = conversation([((1, 2), (3, 4))])
    with pytest.raises(UntrainableError, match=f"turn s/0: its routes .* {len(routes)} bytes for 3 tokens"):
        samples_of([replace(only, completion=replace(only.completion, routes=routes))], 0.0)


def test_routes_of_two_models_in_one_row_are_refused() -> None:
    first, second = conversation([((1, 2), (3, 4)), ((5,), (6, 7))])
    with pytest.raises(
        UntrainableError, match="turn s/1: its routes have 2 experts a token and those before it 1"
    ):
        samples_of([routed(first, 1), routed(second, 2)], 0.0)
