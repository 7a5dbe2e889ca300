"""The sharded trainer on a GPU, in float32 and in bfloat16; run by `make test-gpu` where there is one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.train.fsdp.models import FAMILIES, ROUTED, checkpoint, routed, rows
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from ostinato.store import Objects
from ostinato.sync import Subscriber
from ostinato.sync.shards import Shard
from ostinato.train.batch import Row
from ostinato.train.config import LearnerConfig, TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.fsdp.scoring import plain_logprobs
from ostinato.train.packing import Pack, attend, pack
from ostinato.train.policy import supervised_step
from ostinato.train.trainer import ChainTrainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use"),
]
CPU = Ranks(rank=0, size=1)
HALF = TrainerConfig(kind="fsdp", compute="bfloat16", served="bfloat16")
FLOAT = TrainerConfig(kind="fsdp")


@pytest.fixture(params=[FLOAT, HALF], ids=["float32", "bfloat16"])
def config(request: pytest.FixtureRequest) -> TrainerConfig:
    chosen: TrainerConfig = request.param
    return chosen


@pytest.fixture
def gpu(config: TrainerConfig) -> Iterator[Ranks]:
    ranks = Ranks.join(config)
    assert ranks.device.type == "cuda"
    yield ranks
    ranks.leave()


def lessons(seed: int = 0, prefix: int = 8) -> list[Row]:
    return [
        Row(ids=row.ids, weights=tuple(float(counted) for counted in row.counted))
        for row in rows(6, prefix=prefix, seed=seed)
    ]


def held(model: ShardedModel) -> dict[str, torch.Tensor]:
    """The tensors that this process would publish."""
    return {name: part.tensor if isinstance(part, Shard) else part for name, part in model.served().items()}


def wide(tmp_path: Path, family: str = "qwen3") -> Path:
    """A checkpoint whose heads are as wide as the kernel wants them: a multiple of eight."""
    return checkpoint(tmp_path / "start", (FAMILIES | ROUTED)[family])


@pytest.mark.parametrize("prefix", [0, 40])
@pytest.mark.parametrize("heads", [4, 2])
def test_all_rows_at_once_attend_as_in_turn(prefix: int, heads: int) -> None:
    together = pack([row.scored for row in lessons(prefix=prefix)])
    torch.manual_seed(0)
    shapes = [(1, 4, len(together.ids_T), 64), *[(1, heads, len(together.ids_T), 64)] * 2]
    exact = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    half = [tensor.detach().to("cuda", torch.bfloat16).requires_grad_() for tensor in exact]
    expected = attend(*exact, together)
    found = attend(*half, _placed(together))
    assert_close(found.cpu().double(), expected, rtol=0.02, atol=0.02)
    towards = torch.randn_like(expected)
    (expected * towards).sum().backward()
    (found * towards.to("cuda", torch.bfloat16)).sum().backward()
    for ours, theirs in zip(half, exact, strict=True):
        assert ours.grad is not None and theirs.grad is not None
        apart = (ours.grad.cpu().double() - theirs.grad).norm() / theirs.grad.norm()
        assert apart < 0.02


def _placed(together: Pack) -> Pack:
    return together.to(torch.device("cuda"), at_once=True)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_steps_are_those_of_a_processor(
    tmp_path: Path, gpu: Ranks, config: TrainerConfig, family: str
) -> None:
    start = wide(tmp_path, family)
    here = ShardedModel(start, tmp_path / "gpu", config, gpu)
    there = ShardedModel(start, tmp_path / "cpu", FLOAT, CPU)
    close = 1e-4 if config is FLOAT else 3e-2
    for step in range(4):
        asked = [row.scored for row in lessons(step)]
        ours, theirs = (torch.cat(model.logprobs(asked)) for model in (here, there))
        assert (ours - theirs).abs().max() < 30 * close
        losses = [supervised_step(model, lessons(step), 1e-3) for model in (here, there)]
        assert losses[0] == pytest.approx(losses[1], rel=close)


def test_scores_are_those_of_plain_transformers(tmp_path: Path, gpu: Ranks, config: TrainerConfig) -> None:
    start = wide(tmp_path)
    asked = [row.scored for row in lessons()]
    ours = torch.cat(ShardedModel(start, tmp_path / "run", config, gpu).logprobs(asked))
    plain = plain_logprobs(AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32), asked)
    assert (ours - plain).abs().max() < (1e-4 if config is FLOAT else 0.3)


def test_resumed_it_is_uninterrupted_to_the_bit(tmp_path: Path, gpu: Ranks, config: TrainerConfig) -> None:
    start = wide(tmp_path)
    whole, cut = (ShardedModel(start, tmp_path / name, config, gpu) for name in ("whole", "cut"))
    for step in range(4):
        supervised_step(whole, lessons(step), 1e-3)
    for step in range(2):
        supervised_step(cut, lessons(step), 1e-3)
    cut.save(2, {})
    other = ShardedModel(start, tmp_path / "cut", config, gpu)
    assert other.restore(2) is not None and other.steps == 2
    for step in range(2, 4):
        supervised_step(other, lessons(step), 1e-3)
    ours, theirs = held(other), held(whole)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_what_it_publishes_is_what_it_holds(tmp_path: Path, gpu: Ranks, config: TrainerConfig) -> None:
    start = wide(tmp_path)
    model = ShardedModel(start, tmp_path / "run", config, gpu)
    chain = ChainTrainer(model, Objects.open(tmp_path / "objects"), LearnerConfig(), group=gpu.group)
    chain.publish(0)
    chain.imitate(lessons(), 1e-3)
    chain.publish(1)
    fetched, own = Subscriber(Objects.open(tmp_path / "objects")).fetch(1), held(model)
    assert fetched.keys() == own.keys()
    assert all(torch.equal(tensor, own[name]) for name, tensor in fetched.items())
    began = dict(AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32).named_parameters())
    assert any(not torch.equal(tensor, began[name].to(tensor.dtype)) for name, tensor in fetched.items())


def test_it_replays_recorded_experts(tmp_path: Path, gpu: Ranks, config: TrainerConfig) -> None:
    start = wide(tmp_path, "qwen3_moe")
    asked = [routed(row.scored, seed=i) for i, row in enumerate(lessons())]
    here = ShardedModel(start, tmp_path / "gpu", config, gpu)
    there = ShardedModel(start, tmp_path / "cpu", FLOAT, CPU)
    ours, theirs = (torch.cat(model.logprobs(asked)) for model in (here, there))
    assert (ours - theirs).abs().max() < (1e-3 if config is FLOAT else 0.5)
    here.accumulate(asked, lambda _, scores: -scores.logprobs_N.sum())
    assert here.replayed().recorded > 0
    assert here.discard()


def test_a_rank_without_a_gpu_is_refused(tmp_path: Path) -> None:
    own = os.environ | {"LOCAL_RANK": str(torch.cuda.device_count())}
    line = (
        "from ostinato.train.config import TrainerConfig as T; "
        "from ostinato.train.fsdp.ranks import Ranks; Ranks.join(T(kind='fsdp'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, check=False, env=own, timeout=120
    )
    assert done.returncode != 0 and "has no GPU of its own" in done.stderr
