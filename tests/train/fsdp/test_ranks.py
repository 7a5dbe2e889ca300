"""Two ranks train as one does, publish each its own rows, and end together when one of them dies.

Covers train/fsdp/ranks.py.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fuzz.ray_nodes import is_gone
from safetensors.torch import load_file
from tests.train.fsdp import ranked
from tests.train.fsdp.models import FAMILIES, ROUTED, checkpoint
from tests.train.fsdp.test_model import lessons

from ostinato.store import Objects
from ostinato.sync import Subscriber
from ostinato.train.config import LearnerConfig, TrainerConfig
from ostinato.train.fsdp.model import ShardedModel
from ostinato.train.fsdp.ranks import Ranks
from ostinato.train.trainer import ChainTrainer

ROOT = Path(__file__).parents[3]


LAUNCH = """
import sys
from ostinato.train.fsdp.ranks import torchrun
sys.exit(torchrun(sys.argv[1], sys.argv[2:], 2))
"""


LAST_CALL = """
import os
from pathlib import Path
from ostinato.train.config import TrainerConfig
from ostinato.train.fsdp.ranks import LeadingTrainer, Ranks, end_with, follow

class Disk:
    def write(self, directory):
        if os.environ["RANK"] == "1":
            raise OSError("the disk is full")

def main():
    ranks = Ranks.join(TrainerConfig(kind="fsdp", ranks=2))
    if ranks.leads:
        trainer = LeadingTrainer(Disk(), ranks)
        trainer.write(Path("checkpoint"))
        trainer.end()
    else:
        follow(Disk(), ranks)
    return 0

end_with(main)
"""


def command(tmp_path: Path, start: Path, *more: str) -> list[str]:
    places = [str(start), str(tmp_path / "two"), str(tmp_path / "objects"), "2", *more]
    return [sys.executable, "-c", LAUNCH, "tests.train.fsdp.ranked", *places]


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}


def torchrun(tmp_path: Path, start: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = command(tmp_path, start, *more)
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=240, env=environment(), cwd=ROOT
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [*(pytest.param(name, marks=pytest.mark.deep) for name in ("llama", "qwen2")), "qwen3_moe"]
)
def test_two_ranks_train_and_publish_as_one(tmp_path: Path, family: str) -> None:
    start = checkpoint(tmp_path / "start", (FAMILIES | ROUTED)[family])
    done = torchrun(tmp_path, start)
    assert done.returncode == 0, done.stderr[-3000:]
    model = ShardedModel(start, tmp_path / "one", TrainerConfig(kind="fsdp"), Ranks(rank=0, size=1))
    alone = ChainTrainer(model, Objects.open(tmp_path / "alone"), LearnerConfig())
    losses = [alone.imitate(lessons(seed=step), 1e-3) for step in range(5)]
    five = {name: tensor.clone() for name, tensor in model.served().items()}  # type: ignore[union-attr]
    losses.append(alone.imitate(lessons(seed=9), 1e-3))
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(losses, rel=1e-5)
    published = Subscriber(Objects.open(tmp_path / "objects")).fetch(1)
    assert published.keys() == five.keys()
    for name, tensor in five.items():
        torch.testing.assert_close(published[name], tensor, rtol=0, atol=1e-4)
    written = load_file(tmp_path / "two" / "written" / "model.safetensors")
    for name, tensor in model.served().items():
        torch.testing.assert_close(written[name], tensor, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_two_ranks_take_policy_gradient_steps_as_one(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start", ROUTED["qwen3_moe"])
    done = torchrun(tmp_path, start, "policy")
    assert done.returncode == 0, done.stderr[-3000:]
    replayed, *grouped = json.loads(done.stdout.splitlines()[-1])
    one, two, three = (
        ShardedModel(
            start,
            tmp_path / name,
            TrainerConfig(kind="fsdp", piece_tokens=60, lora_rank=rank),
            Ranks(rank=0, size=1),
        )
        for name, rank in (("one", 0), ("groups", 0), ("adapters", 4))
    )
    check_replayed(replayed, ranked.replaying(one))
    for found, model, name in zip(grouped, (two, three), ("whole", "adapted"), strict=True):
        alone = ChainTrainer(model, Objects.open(tmp_path / name), ranked.WITH_K1)
        check_grouped(found, ranked.penalised(alone))


def check_replayed(found: list[list[float]], expected: list[list[float]]) -> None:
    """Assert that routes were replayed in both, with equal losses, gradients and scores."""
    for mine, theirs in zip(found[:-1], expected[:-1], strict=True):
        assert mine[:3] == pytest.approx(theirs[:3], rel=1e-5)
        # The shares are of the choices that were computed, and two ranks pack a shared prefix more often.
        assert mine[3:] == pytest.approx(theirs[3:], abs=0.05)
        assert mine[2] == 1 and 0 < mine[4] < mine[3]
    assert found[-1] == pytest.approx(expected[-1], abs=1e-4)


def check_grouped(found: list[list[float]], expected: list[list[float]]) -> None:
    """Assert that k1 was penalised in both, and that the groups without a gradient were dropped."""
    for mine, theirs in zip(found[:-1], expected[:-1], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)
    assert abs(found[0][2]) < 1e-4 < abs(found[1][2]) and [each[3] for each in found[:-1]] == [6, 6, 0]
    assert found[-1] == pytest.approx(expected[-1], abs=1e-4)


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_job_by_the_same_signal_and_publishes_nothing(
    tmp_path: Path,
) -> None:
    start = checkpoint(tmp_path / "start")
    done = torchrun(tmp_path, start, "die")
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert Subscriber(Objects.open(tmp_path / "objects")).head() == 0


@pytest.mark.slow
def test_a_rank_that_fails_in_the_last_call_fails_every_rank() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    job = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", LAST_CALL],
            env=environment() | job | {"RANK": str(rank)},
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], told
    assert "another rank has ended" in told[0] and "the disk is full" in told[1]


@pytest.mark.slow
def test_a_rank_whose_launcher_has_ended_before_it_joins_ends_at_once(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.train.fsdp.ranked", "start", "run", "objects", "2", "wait", "told"]
    gone = {"TORCHELASTIC_RUN_ID": "1", "OSTINATO_LAUNCHER": "0"}
    done = subprocess.run(words, check=False, env=environment() | gone, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    start, told = checkpoint(tmp_path / "start"), tmp_path / "told"
    told.mkdir()
    words = command(tmp_path, start, "wait", str(told))
    with subprocess.Popen(words, env=environment(), cwd=ROOT) as launcher:
        while len(ranks := [int(path.name) for path in told.iterdir()]) < 2:
            assert launcher.poll() is None
            time.sleep(0.1)
        launcher.kill()
    while not all(is_gone(rank) for rank in ranks):
        time.sleep(0.1)
