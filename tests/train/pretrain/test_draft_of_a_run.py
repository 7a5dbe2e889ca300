"""A draft beside a model that practises: published with it, saved with it, and taught as its run says.

Covers train/pretrain/draft.py: DraftingModel.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.test_learner import Bench, MakeSample, checkpoint, never

from ostinato.model.checkpoint import load, load_config
from ostinato.model.mtp import draft_shapes, has_draft, load_draft
from ostinato.train.base import NotFiniteError, StateError
from ostinato.train.batch import ScoredRow
from ostinato.train.config import LearnerConfig, LearnerProcess, TrainerConfig
from ostinato.train.journal import Journal
from ostinato.train.learner import Learner, train
from ostinato.train.pretrain import draft
from ostinato.train.pretrain.draft import DraftingModel, sampled_of
from ostinato.train.trainer import ChainTrainer

__all__ = ["checkpoint"]


class Drafting(Bench):
    """Learners whose model has a draft, which learns as `how` says."""

    how = "joint"

    def learner(self, *_: Any, **__: Any) -> Learner:
        decoder, _, meta = load(self.checkpoint)
        run_dir, config = self.directory / "run", LearnerConfig(groups=2)
        self.model = DraftingModel(decoder, run_dir, self.checkpoint, how=self.how)
        trainer = ChainTrainer(self.model, self.objects, config)
        learner = Learner(trainer, self.store, Journal(run_dir / "learner.jsonl"), config)
        learner.start(meta.version)
        return learner

    def practise(self, until: int) -> "Drafting":
        """Publish versions up to this one, each with a learner of its own, as after a kill."""
        for version in range(1, until + 1):
            for _ in range(2):
                self.offer(1.0, -1.0, version=version - 1)
            self.learner().run(version, never)
        return self

    def parts(self, version: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return the published weights of the model, and those of its draft."""
        tensors, names = self.weights(version), draft_shapes(load_config(self.checkpoint))
        return {name: tensors[name] for name in tensors.keys() - names.keys()}, {
            name: tensors[name] for name in names
        }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def benches(tmp_path: Path, checkpoint: Path, make_sample: MakeSample) -> Any:
    def made(kind: type[Bench], name: str, how: str = "joint") -> Any:
        directory = tmp_path / name
        directory.mkdir()
        bench = kind(directory, checkpoint, make_sample)
        if isinstance(bench, Drafting):
            bench.how = how
        return bench

    return made


def test_the_model_practises_as_if_there_were_no_draft(benches: Any) -> None:
    joint, frozen = benches(Drafting, "joint").practise(2), benches(Drafting, "frozen", "frozen").practise(2)
    plain = benches(Bench, "plain")
    for version in range(1, 3):
        for _ in range(2):
            plain.offer(1.0, -1.0, version=version - 1)
        plain.learner().run(version, never)
    for version in range(3):
        assert same(joint.parts(version)[0], plain.weights(version))
        assert same(frozen.parts(version)[1], frozen.parts(0)[1])
    assert same(joint.parts(0)[1], frozen.parts(0)[1])
    assert not any(same(joint.parts(version)[1], joint.parts(version - 1)[1]) for version in range(1, 3))
    lines = Journal(joint.directory / "run" / "draft.jsonl").lines()
    assert [line["learnt"] for line in lines] == [True] * 2 and all(
        0 < line["draft_acceptance"][0] <= 1 for line in lines
    )


def test_a_chain_without_a_draft_is_refused_by_name(benches: Any) -> None:
    plain = benches(Bench, "plain")
    plain.learner()
    drafting = benches(Drafting, "drafting")
    drafting.objects, drafting.store, drafting.ledger = plain.objects, plain.store, plain.ledger
    with pytest.raises(StateError, match=r"no draft of this shape: .*missing .*trainer.draft to none"):
        drafting.learner()


def test_a_draft_is_refreshed_while_it_foretells_less_than_it_did(
    tmp_path: Path, checkpoint: Path, make_sample: MakeSample
) -> None:
    model = DraftingModel(load(checkpoint)[0], tmp_path, checkpoint, how="refreshed")
    samples = [make_sample(seed, length=30) for seed in range(64)]
    rows = [ScoredRow(ids=sample.ids, counted=sample.mask) for sample in samples]

    def step(number: int) -> bool:
        """Take a step that leaves the decoder as it is; return whether the draft changed."""
        before = {name: tensor.clone() for name, tensor in model.draft.mtp.state_dict().items()}
        model.accumulate(rows, lambda _, scores: 0.0 * scores.logprobs_N.sum())
        model.update(3e-2, 1.0)
        model.save(number, {})
        return not same(before, dict(model.draft.mtp.state_dict()))

    assert not any([step(1), step(2)])
    with torch.no_grad():
        for parameter in model.draft.mtp.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    assert not step(3)  # here the fall is measured
    # A learner that was killed goes on as it would have: it learns until what was lost is back.
    model = DraftingModel(load(checkpoint)[0], tmp_path, checkpoint, how="refreshed")
    model.restore(3)
    learnt = [step(number) for number in range(4, 40)]
    assert learnt[0] and not learnt[-1]
    best = max(line["draft_acceptance"][0] for line in Journal(tmp_path / "draft.jsonl").lines()[:2])
    assert Journal(tmp_path / "draft.jsonl").lines()[-1]["draft_acceptance"][0] > best - 2 * draft.FALL


def test_a_gradient_that_is_not_finite_changes_neither(tmp_path: Path, checkpoint: Path) -> None:
    model = DraftingModel(load(checkpoint)[0], tmp_path, checkpoint, how="joint")
    row = ScoredRow(ids=tuple(range(10)), counted=(True,) * 10)
    model.accumulate([row], lambda _, scores: scores.logprobs_N.sum())
    parameter = model.draft.mtp.join
    assert parameter.grad is not None
    parameter.grad[0, 0] = torch.inf
    before = {name: tensor.clone() for name, tensor in model.served().items()}
    with pytest.raises(NotFiniteError):
        model.update(1e-2, 1.0)
    assert same(before, dict(model.served()))


def test_it_learns_where_a_sampled_token_is_foretold() -> None:
    rows = [
        ScoredRow(ids=(1, 2, 3, 4), counted=(False, True, True, False)),
        ScoredRow(ids=(1,), counted=(True,)),
        ScoredRow(ids=(5, 6, 7), counted=(False, False, True)),
    ]
    assert sampled_of(rows).tolist() == [0, 5]


def test_the_checkpoint_of_a_run_has_its_draft(benches: Any, tmp_path: Path) -> None:
    """A learner as a process leaves it, and one without a draft leaves none."""
    bench, trainer = benches(Bench, "run"), TrainerConfig(draft="frozen")
    settings = LearnerProcess(
        store=str(bench.directory / "store.db"),
        objects=str(bench.directory / "objects"),
        checkpoint=bench.checkpoint,
        run_dir=bench.directory / "run",
        until=0,
        trainer=trainer,
    )
    train(settings, never)
    out = bench.directory / "run" / "checkpoint"
    decoder, tokenizer, _ = load(out)
    read = load_draft(out, decoder.config, tokenizer=tokenizer.digest)
    assert same(dict(read.state_dict()), Drafting.parts(bench, 0)[1]) and not has_draft(bench.checkpoint)


def test_only_the_local_trainer_has_one() -> None:
    with pytest.raises(ValueError, match="only the trainer of kind local teaches an MTP layer"):
        TrainerConfig(kind="fsdp", draft="joint")
