"""The world of chains, and the studies of summaries and of stale models, tiny.

Covers experiments/chains.py, experiments/summaries.py and experiments/stale_model.py.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from experiments import chains, stale_model, summaries
from experiments.chains import PARTS, SHAPE, careful, errands, fact, groups_of, held_out, lesson, play
from experiments.staleness import NONE, TRUNCATED, arm_of

from ostinato.model.decoder import Decoder
from ostinato.train.config import PolicyConfig
from ostinato.train.local import DecoderModel
from ostinato.train.policy import rows_of


@pytest.fixture
def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(SHAPE)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Studies of two versions after three steps of teaching."""
    monkeypatch.setattr(chains, "TEACH_STEPS", 3)
    monkeypatch.setattr(summaries, "VERSIONS", 2)
    monkeypatch.setattr(stale_model, "VERSIONS", 3)
    caches = (summaries.taught, summaries.practised, stale_model.practised)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def test_each_share_reads_all_facts_and_asks_for_all_keys_within_its_tokens() -> None:
    for share, part in {"full": 1.0, "half": 0.5, "quarter": 0.25}.items():
        assert [sum(each) for each in zip(*PARTS[share], strict=True)] == [chains.KEYS, chains.ASKED]
        assert max(facts + 2 * asked for facts, asked in PARTS[share]) <= math.ceil(part * 14)


def test_no_training_task_asks_for_a_held_out_set() -> None:
    clusters = {task.cluster for task in held_out()}
    tasks = errands(3)
    assert len(held_out()) == 288 and len(clusters) == 24
    assert not clusters & {next(tasks).cluster for _ in range(500)}


def test_what_was_sampled_is_what_the_trainer_scores(decoder: Decoder, tmp_path: Path) -> None:
    tasks = errands(1)
    for share in PARTS:
        groups = groups_of(decoder, [next(tasks)], share, torch.Generator().manual_seed(1), version=4, size=4)
        model = DecoderModel(decoder, tmp_path)
        for sample in groups[0].samples:
            (scored,) = model.logprobs(rows_of(model, [sample], PolicyConfig()))
            noted = [x for x, sampled in zip(sample.logprobs, sample.mask, strict=True) if sampled]
            assert scored.tolist() == pytest.approx(noted, abs=1e-5) and sample.oldest_version == 4


def test_masked_summaries_are_read_and_not_trained_and_the_rest_is_the_same(decoder: Decoder) -> None:
    tasks = [next(errands(1))]
    both = [
        groups_of(decoder, tasks, "quarter", torch.Generator().manual_seed(1), version=0, size=2, summaries=s)
        for s in (True, False)
    ]
    trained, masked = ([sum(row.mask) for row in group[0].samples] for group in both)
    assert trained == [6, 6, 8, 1] * 2 and masked == [2, 1] * 2
    assert {row.ids for row in both[1][0].samples} <= {row.ids for row in both[0][0].samples}


def test_a_careful_teacher_carries_every_answer_on_and_a_careless_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = next(errands(2))
    for share, carried in ((0.0, True), (1.0, False)):
        monkeypatch.setattr(chains, "CARELESS", share)
        rows = lesson(task, "quarter", Random(0))
        answers = [
            row.ids[place] - chains.VALUE
            for row in rows
            for place, weight in enumerate(row.weights)
            if weight and chains.VALUE <= row.ids[place] < chains.FACT
        ]
        assert (answers == list(task.answers)) is carried
        assert set(answers) <= set(task.answers), "what a summary left out is not taught as an answer"


def test_a_summary_has_a_place_for_each_key_that_will_be_asked() -> None:
    key = chains.KEY
    told = [key + 2, fact(2, 3), key + 5, chains.PAD, key + 1, fact(1, 7)]
    assert careful((2, 5, 1), {1: 7, 2: 3, 4: 0}) == told
    assert chains.careless([(4, 0), (0, 1)]) == [key + 4, fact(4, 0), key, fact(0, 1), chains.PAD, chains.PAD]


def test_an_oracle_and_an_empty_summary_are_what_the_next_segment_reads(decoder: Decoder) -> None:
    task = next(errands(1))
    for writer, note in ((chains.ORACLE, careful(task.asked, dict(task.facts[:7]))), (chains.EMPTY, [0] * 6)):
        (played,) = play(decoder, [task], "half", torch.Generator().manual_seed(1), summaries=writer)
        begin = played.turns[1].prompt_ids
        assert list(begin[4:11]) == [chains.NOTE, *note]


@pytest.mark.usefixtures("tiny")
def test_the_study_of_summaries_runs_tiny_and_its_seed_decides() -> None:
    for arm in summaries.STUDY.arms:
        found = summaries.run(arm, 1)
        assert all(map(math.isfinite, found.figures.values()))
        assert found.figures["error, half"] == pytest.approx(
            found.figures["solved, full"] - found.figures["solved, half"]
        )
    once = summaries.run(summaries.MASKED, 2)
    summaries.practised.cache_clear()
    assert summaries.run(summaries.MASKED, 2) == once
    within = summaries.within_seeds(summaries.TRAINED, range(1, 3))
    assert within["half"]["low"] <= within["half"]["estimate"] <= within["half"]["high"]


@pytest.mark.usefixtures("tiny")
def test_the_study_of_stale_models_runs_tiny_and_no_correction_changes_what_is_not_behind() -> None:
    plain, truncated, stale = (
        stale_model.run(arm_of(gap, correction), 1)
        for gap, correction in ((0, NONE), (0, TRUNCATED), (16, TRUNCATED))
    )
    assert plain.figures == truncated.figures and list(plain.curves) == ["solved, no correction"]
    assert set(stale.figures) == {stale_model.HELD_OUT, stale_model.WAY, stale_model.WORTH}
