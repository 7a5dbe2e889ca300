"""A sharded model in one process: steps, states and versions, as a plain transformers model would have them.

Covers train/fsdp/model.py, train/fsdp/states.py and train/fsdp/adapters.py.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.train.fsdp.models import checkpoint, rows
from transformers import AutoModelForCausalLM

from ostinato.model.tensor_files import CheckpointError, TensorFiles
from ostinato.store import Objects
from ostinato.sync import Subscriber
from ostinato.train.base import StateError, StepError
from ostinato.train.batch import Row, ScoredRow
from ostinato.train.config import LearnerConfig, TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.policy import supervised_step
from ostinato.train.trainer import ChainTrainer

ALONE = Ranks(rank=0, size=1)
CONFIG = TrainerConfig(kind="fsdp")


def model(directory: Path, run: str = "run", **settings: object) -> ShardedModel:
    config = TrainerConfig(kind="fsdp", **settings)  # type: ignore[arg-type]
    return ShardedModel(directory, directory.parent / run, config, ALONE)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "start")


def lessons(count: int = 6, seed: int = 0) -> list[Row]:
    return [
        Row(ids=row.ids, weights=tuple(float(counted) for counted in row.counted))
        for row in rows(count, prefix=8, seed=seed)
    ]


def served(trained: ShardedModel) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trained.served().items()}  # type: ignore[union-attr]


def test_five_steps_are_those_of_a_plain_loop(start: Path) -> None:
    trained = model(start)
    plain = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(5):
        batch = lessons(seed=step)
        loss = torch.zeros(())
        total = sum(weight for row in batch for weight in row.counted_weights)
        for row in batch:
            ids = torch.tensor(row.ids)
            logprobs = torch.log_softmax(plain(input_ids=ids[None]).logits[0, :-1], -1)
            own = logprobs.gather(1, ids[1:, None])[:, 0]
            loss = loss - (own * torch.tensor(row.weights[1:])).sum() / total
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        assert supervised_step(trained, batch, 1e-3) == pytest.approx(loss.item(), rel=1e-5)
    weights = dict(plain.named_parameters())
    for name, tensor in trained.served().items():
        torch.testing.assert_close(tensor, weights[name].detach(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"recompute": True}, {"piece_tokens": 30}, {"lora_rank": 4}])
def test_resumed_it_is_uninterrupted_to_the_bit(start: Path, settings: dict[str, object]) -> None:
    whole, cut = model(start, "whole", **settings), model(start, "cut", **settings)
    for step in range(4):
        supervised_step(whole, lessons(seed=step), 1e-3)
    for step in range(2):
        supervised_step(cut, lessons(seed=step), 1e-3)
    cut.save(2, {"told": "this"})
    other = model(start, "cut", **settings)
    note = other.restore(2)
    assert note is not None and note["told"] == "this" and other.steps == 2
    for step in range(2, 4):
        supervised_step(other, lessons(seed=step), 1e-3)
    ours, theirs = served(other), served(whole)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert other.saved() == [2] and other.saved(before=2) == []


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 4}], ids=str)
def test_the_reference_stays_while_the_policy_moves(start: Path, settings: dict[str, object]) -> None:
    trained, asked = model(start, **settings), [row.scored for row in lessons()]
    trained.refer(served(trained))
    before = trained.logprobs(asked)
    for step in range(3):
        supervised_step(trained, lessons(seed=step), 1e-2)
    reference, first, now = map(
        torch.cat, (trained.reference_logprobs(asked), before, trained.logprobs(asked))
    )
    torch.testing.assert_close(reference, first, rtol=0, atol=1e-5)
    assert (now - first).abs().max() > 1e-2


def test_adapters_have_what_they_are_added_to_as_their_only_reference(start: Path) -> None:
    trained = model(start, lora_rank=4)
    supervised_step(trained, lessons(), 1e-2)
    with pytest.raises(StateError, match="is not that of the weights that adapters are added to"):
        trained.refer(served(trained))


def test_a_gradient_that_is_not_finite_changes_nothing(start: Path) -> None:
    trained = model(start)
    before = served(trained)
    rows = [row.scored for row in lessons()]
    trained.accumulate(rows, lambda _, scores: scores.logprobs_N.sum() * torch.nan)
    with pytest.raises(StepError, match="not finite"):
        trained.update(1e-2, 1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in served(trained).items())
    assert trained.steps == 0 and all(p.grad is None for p in trained._trained.values())
    for scale, finite in ((1.0, True), (torch.nan, False)):
        trained.accumulate(rows, lambda _, scores: scores.logprobs_N.sum() * scale)  # noqa: B023
        assert trained.discard() is finite and all(p.grad is None for p in trained._trained.values())


def test_only_the_newest_states_are_kept_and_a_half_written_one_is_none(start: Path) -> None:
    trained = model(start)
    supervised_step(trained, lessons(), 1e-3)
    for number in (1, 2, 3):
        trained.save(number, {})
    assert trained.saved() == [2, 3]
    states = start.parent / "run" / "states"
    shutil.copytree(states / "0000000003", states / "0000000004.part")
    assert trained.saved() == [2, 3] and trained.restore(4) is None


def test_a_damaged_state_is_named(start: Path) -> None:
    trained = model(start)
    supervised_step(trained, lessons(), 1e-3)
    trained.save(1, {})
    for file in (start.parent / "run" / "states" / "0000000001").glob("*.distcp"):
        file.write_bytes(b"")
    with pytest.raises(StateError, match="0000000001 is not a state of this model"):
        trained.restore(1)


def test_a_disk_without_room_is_found_before_anything_is_written(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = model(start)
    usage = shutil.disk_usage(start)._replace(free=100)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(StateError, match=r"the disk has 0\.0 GB left"):
        trained.save(1, {})
    assert list((start.parent / "run" / "states").iterdir()) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_versions_reach_a_reader_in_the_served_type(start: Path, dtype: str) -> None:
    objects = Objects.open(start.parent / "objects")
    trained = model(start, served=dtype)
    trainer = ChainTrainer(trained, objects, LearnerConfig())
    trainer.publish(0)
    trainer.imitate(lessons(), 1e-2)
    trainer.save(1, {})
    manifest = trainer.publish(1)
    fetched = Subscriber(objects).fetch(1)
    for name, tensor in trained.served().items():
        assert torch.equal(fetched[name], tensor) and str(tensor.dtype) == f"torch.{dtype}"  # type: ignore[arg-type, union-attr]
    assert "lm_head.weight" not in fetched
    again = ChainTrainer(model(start, served=dtype), objects, LearnerConfig())
    head = again.resume()
    assert head is not None and head.version == 1
    assert again.restore(manifest) is not None
    other = model(start, "other", served=dtype)
    ChainTrainer(other, objects, LearnerConfig()).begin(manifest)
    assert all(torch.equal(tensor, fetched[name]) for name, tensor in served(other).items())


def test_the_state_of_other_weights_is_not_taken_for_a_version(start: Path) -> None:
    objects = Objects.open(start.parent / "objects")
    trainer = ChainTrainer(model(start), objects, LearnerConfig())
    manifest = trainer.publish(0)
    trainer.imitate(lessons(), 1e-2)
    trainer.save(0, {})
    assert trainer.restore(manifest) is None


def test_moments_of_an_earlier_run_are_taken_over(start: Path) -> None:
    earlier = model(start, "earlier")
    for step in range(3):
        supervised_step(earlier, lessons(seed=step), 1e-3)
    earlier.save(3, {})
    later = model(start, "later")
    assert later.inherit(start.parent / "earlier") == 3 and later.steps == 3
    assert later.inherit(start.parent / "nowhere") is None


def test_adapters_alone_are_trained_and_published_merged(start: Path) -> None:
    adapted = model(start, lora_rank=4)
    before = served(adapted)
    supervised_step(adapted, lessons(), 1e-2)
    after = served(adapted)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("_proj" in name for name in changed)
    assert before.keys() == set(TensorFiles.open(start).entries)
    adapted.write(start.parent / "merged")
    shutil.copy(start / "config.json", start.parent / "merged")
    merged = AutoModelForCausalLM.from_pretrained(start.parent / "merged", dtype=torch.float32)
    row = rows(1)[0]
    plain = torch.log_softmax(merged(input_ids=torch.tensor([row.ids])).logits[0], -1)
    row = ScoredRow(ids=row.ids, counted=row.counted)
    (scores,) = adapted.logprobs([row])
    expected = torch.stack([plain[place - 1, row.ids[place]] for place in row.places])
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adapters_begin_at_any_published_version_and_come_back_to_the_bit(start: Path, dtype: str) -> None:
    objects, settings = Objects.open(start.parent / "objects"), {"lora_rank": 4, "served": dtype}
    chain = ChainTrainer(first := model(start, **settings), objects, LearnerConfig())
    masters = {name: tensor.clone() for name, tensor in first._scoring.named_parameters()}
    chain.begin(chain.publish(0))
    assert all(torch.equal(tensor, masters[name]) for name, tensor in first._scoring.named_parameters())
    for version in (1, 2):
        chain.imitate(lessons(seed=version), 1e-2)
        chain.save(version, {})
        chain.publish(version)
    put_back = ChainTrainer(again := model(start, "again", **settings), objects, LearnerConfig())
    assert put_back.resume() is not None and put_back.restore(put_back.manifest(1)) is None
    put_back.begin(put_back.manifest(1))
    published = Subscriber(objects).fetch(1)
    assert all(torch.equal(tensor, published[name]) for name, tensor in served(again).items())
    put_back.imitate(lessons(seed=3), 1e-2)
    put_back.save(3, {})
    third = put_back.publish(3)
    restarted = ChainTrainer(late := model(start, "again", **settings), objects, LearnerConfig())
    assert restarted.restore(third) is not None
    for chain in (put_back, restarted):
        chain.imitate(lessons(seed=4), 1e-2)
    expected = served(again)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in served(late).items())
    shutil.copytree(
        start.parent / "run" / "states" / "0000000002", start.parent / "again" / "states" / "0000000002"
    )
    with pytest.raises(StateError, match="state 2 holds adapters alone"):
        late.restore(2)


def test_scores_without_gradient_are_in_the_order_of_the_rows(start: Path) -> None:
    trained, given = model(start, piece_tokens=40), rows(9, prefix=5)
    together = trained.logprobs(given)
    for row, scores in zip(given, together, strict=True):
        (alone,) = trained.logprobs([row])
        torch.testing.assert_close(scores, alone, rtol=0, atol=1e-5)


def damaged(change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        weights = load_file(directory / "model.safetensors")
        change(weights)
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})

    return damage


def _spoil(weights: dict[str, torch.Tensor]) -> None:
    weights["model.norm.weight"][0] = float("nan")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged(_spoil), "norm.weight"),
        (damaged(lambda weights: weights.pop("model.norm.weight")), "norm.weight"),  # type: ignore[arg-type]
        (lambda directory: (directory / "model.safetensors").unlink(), "model.safetensors"),
    ],
)
def test_a_damaged_checkpoint_is_refused(start: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(start)
    with pytest.raises(CheckpointError, match=message):
        model(start)
