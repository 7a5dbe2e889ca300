"""The processes that train one model together: rank 0 leads, the others repeat each of its calls.

torchrun starts them, on one machine or many (`python -m torch.distributed.run --nproc-per-node 8 -m
ostinato.train.learner …`); a command with `trainer.ranks` above 1 that was not started so starts itself anew
under it. A rank that dies ends all of them, and a call that one rank does not join ends after PATIENCE.
"""

import ctypes
import logging
import os
import signal
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, Self, cast

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ostinato.sync import Manifest, RankGroup
from ostinato.train.base import Note, StateError, StepStats, Trainer
from ostinato.train.batch import Row
from ostinato.train.config import TrainerConfig
from ostinato.types import Group

PR_SET_PDEATHSIG = 1
LAUNCHER = "OSTINATO_LAUNCHER"
"""The environment variable in which a rank finds the process id of `torchrun`, its parent."""
log = logging.getLogger(__name__)
PATIENCE = timedelta(minutes=30)
"""The longest time between two calls of rank 0, and the longest that one rank waits for another in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among those that train together.

    >>> Ranks(rank=0, size=1).leads
    True
    """

    rank: int
    size: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    job: str = ""

    @classmethod
    def join(cls, config: TrainerConfig) -> Self:
        """Join the processes that torchrun started; alone without it, on a GPU where there is one.

        Raises StateError when a machine with GPUs has fewer of them than ranks.
        """
        if under_torchrun():
            die_with_launcher()
        cuda = torch.cuda.is_available()
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if cuda and local >= torch.cuda.device_count():
            raise StateError(
                f"rank {local} of this machine has no GPU of its own: it has {torch.cuda.device_count()}, "
                "start as many ranks"
            )
        device = torch.device("cuda", local) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        if under_torchrun():
            dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
        elif config.compute != "float32":  # the sharding is what computes in another type
            dist.init_process_group(
                "nccl" if cuda else "gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1
            )
        if not dist.is_initialized():
            return cls(rank=0, size=1, device=device)
        job = "-".join(os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_PORT"))
        ranks = cls(rank=dist.get_rank(), size=dist.get_world_size(), device=device)
        (job,) = ranks.shared([f"{job}-{os.getpid()}-{os.urandom(4).hex()}"])
        return cls(rank=ranks.rank, size=ranks.size, device=device, job=job)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def group(self) -> RankGroup | None:
        """The ranks that publish together; None for a process alone."""
        return None if self.size == 1 else RankGroup(rank=self.rank, size=self.size, job=self.job)

    def shared(self, values: list[Any]) -> list[Any]:
        """Return rank 0's values on every rank. They are pickled, between processes of one job.

        Raises StateError when another rank has ended.
        """
        if self.size > 1:
            with _all_there():
                dist.broadcast_object_list(values, src=0)
        return values

    def all(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        if self.size > 1:
            with _all_there():
                dist.barrier()

    def leave(self) -> None:
        """Leave the other ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()


class LeadingTrainer:
    """The `Trainer` of rank 0: each call is made by the other ranks too."""

    def __init__(self, trainer: Trainer, ranks: Ranks) -> None:
        self._trainer, self._ranks = trainer, ranks

    def resume(self) -> Manifest | None:
        return cast("Manifest | None", self._call("resume"))

    def restore(self, version: Manifest) -> Note | None:
        return cast("Note | None", self._call("restore", version))

    def begin(self, version: Manifest) -> None:
        self._call("begin", version)

    def refer(self, version: int) -> None:
        self._call("refer", version)

    def step(self, groups: Sequence[Group], version: int) -> StepStats:
        return cast(StepStats, self._call("step", groups, version))

    def imitate(self, rows: Sequence[Row], rate: float) -> float:
        return cast(float, self._call("imitate", rows, rate))

    def save(self, version: int, note: Note) -> None:
        self._call("save", version, note)

    def saved(self, before: int | None = None) -> list[int]:
        return self._trainer.saved(before)

    def go_on(self) -> Note | None:
        return cast("Note | None", self._call("go_on"))

    def publish(self, version: int) -> Manifest:
        return cast(Manifest, self._call("publish", version))

    def manifest(self, version: int) -> Manifest:
        return self._trainer.manifest(version)

    def write(self, directory: Path) -> None:
        self._call("write", directory)

    def end(self) -> None:
        """Let the other ranks end, once all have made every call. Raises StateError when one has not."""
        self._ranks.shared(["", ()])
        self._ranks.barrier()

    def _call(self, name: str, *arguments: Any) -> Any:
        self._ranks.shared([name, arguments])
        return getattr(self._trainer, name)(*arguments)


def follow(trainer: Trainer, ranks: Ranks) -> None:
    """Make every call that rank 0 makes, until it ends."""
    while True:
        name, arguments = ranks.shared([None, None])
        if not name:
            ranks.barrier()
            return
        getattr(trainer, name)(*arguments)


@contextmanager
def _all_there() -> Iterator[None]:
    """Name the cause of what a library reports as a closed connection."""
    try:
        yield
    except RuntimeError as error:
        raise StateError(
            f"another rank has ended or cannot be reached, see its own last line: {error}"
        ) from error


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def end_with(work: Callable[[], int]) -> NoReturn:
    """Do `work` and end this rank with the status it returns, or with 1 after an error, which is printed.

    Python's finalization is left out: a thread of gloo that lets go of the last collective's tensors
    meanwhile, as on a busy machine, aborts a rank whose work is done or has failed. Who started the job would
    take that for a kill, and start it again. Leaving the group does not end gloo's threads.
    """
    try:
        status = work()
    except Exception:
        traceback.print_exc()
        status = 1
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def torchrun(module: str, arguments: Sequence[str], ranks: int) -> int:
    """Run `python -m module` as `ranks` processes on this machine, as torchrun does; return the exit status.

    A signal to end is passed on, and rank 0 then leaves a state. When a signal has ended a rank, this process
    ends by the same one, after the other ranks: whoever started it sees a process that was killed, and
    starts all ranks again from their state.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id=uuid.uuid4().hex,
        max_restarts=0,
    )
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        elastic_launch(config, sys.executable)("-m", module, *arguments)
    except SignalException as error:
        return 128 + int(error.sigval)
    except ChildFailedError as error:
        rank, first = error.get_first_failure()
        log.error("rank %d ended with %d, and with it the others", rank, first.exitcode)
        if (code := first.exitcode) < 0:
            if -code != signal.SIGKILL:
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        return 1
    return 0


def die_with_launcher() -> None:
    """Let this rank be killed when what started it ends, even killed (Linux only): the step is done again by
    others. One whose `torchrun` has ended already would wait for the other ranks in vain, and ends now."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if LAUNCHER in os.environ and os.environ[LAUNCHER] != str(os.getppid()):
        os.kill(os.getpid(), signal.SIGKILL)
