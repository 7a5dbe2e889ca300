"""The common floor of both tiers of `benchmarks.trl_practice_worker`, in the process of TRL."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ostinato.config import load
from ostinato.harness.profiles.profile import profile
from ostinato.loop.config import RunConfig
from ostinato.loop.run import START, Run
from ostinato.loop.stages.prepare import load_wire
from ostinato.rewards.practice.definition import PRACTICE, PracticeReward

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The decisions of the parent. `run` is a run folder of its own; its newest version is the taught one."""

    tier: str
    run: str
    checkpoint: str
    tasks: Sequence[str]
    """The folders of the tasks in the order in which they are practised, a batch for each version."""
    keep: Sequence[int]
    """The versions whose weights are saved."""
    out: str
    threads: int
    continuous: bool
    """True to generate with the continuous batching of transformers."""


class Clock:
    """The wall and process seconds of each phase; what is in no phase is learning."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            total = self.spent.setdefault(name, [0.0, 0.0])
            total[0] += time.perf_counter() - wall
            total[1] += time.process_time() - cpu


class EventLoop:
    """An event loop in a thread of its own, where sandboxes, harness and engine live."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Floor:
    """The common floor of both tiers: settings, wire format, reward, an event loop and a clock."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.run = Run(directory=Path(settings.run))
        self.config = load(RunConfig, self.run.config)
        self.shown = profile(self.config.harness.profile)
        _, self.renderer = load_wire(self.run.checkpoint(START))
        self.reward = PracticeReward(PRACTICE, self.renderer)
        self.loop, self.clock = EventLoop(), Clock()
        self.rewards: list[float] = []
        self.solved: list[bool] = []

    def messages(self, instruction: str) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": self.shown.system},
            {"role": "user", "content": instruction},
        ]

    def note(self, reward: float, *, solved: bool) -> float:
        self.rewards.append(reward)
        self.solved.append(solved)
        return reward
