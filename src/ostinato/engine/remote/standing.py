"""The weights that a foreign engine serves: what was said, what it shows, and what is released to it.

A trained version reaches it on one of the ways of `release.py`, and stands when the log-probabilities of a
prompt show it (`probe.py`). They are asked again every few seconds and after each failure. While they are not
those of the version the arm is held: no request is answered, until a second release, or somebody at the
engine, has put it back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from ostinato.engine.base import EngineError, InvalidRequestError, LoadRefusedError
from ostinato.engine.config import EngineServerConfig
from ostinato.engine.remote.probe import (
    OTHER,
    PROBED,
    OwnScores,
    Scores,
    Seen,
    asked,
    distance,
    not_own,
)
from ostinato.engine.remote.release import WAYS, Releaser, cards_of
from ostinato.engine.vllm.calls import VllmCalls
from ostinato.model.tensor_files import TensorFiles

log = logging.getLogger(__name__)
FIXED = "a remote engine serves the weights it was started with: swap and pause it where it runs"
WATCH_S, POLL_S = 10.0, 1.0
"""Seconds between two looks at what is served, and at what a command has been run for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """The version that is served, and the name by which requests ask for it.

    >>> Stand(version=0, name="Qwen/Qwen3-8B").scores
    ()
    """

    version: int
    name: str
    files: Path | None = None
    scores: Scores = ()
    """Those of a released version; () for the weights that the engine was started with."""
    in_place: bool = False
    """It stands in the place of the version before, under the same name."""


class Standing:
    """The weights of one engine, which serves `model`."""

    def __init__(self, calls: VllmCalls, url: str, model: str) -> None:
        self._calls, self._url = calls, url
        self.now = Stand(version=0, name=model)
        self.held = ""
        """The reason why nothing is served; empty while all is well."""
        self._sure = True
        """False after a failure, until the engine has shown again what it serves."""
        self._seen: Seen | None = None
        self._own: OwnScores | None = None
        self._way: Releaser | None = None
        self._probed: Sequence[int] = ()
        self._open, self._idle, self._running = asyncio.Event(), asyncio.Event(), 0
        self._open.set()
        self._idle.set()
        self._releasing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    async def begin(self, config: EngineServerConfig | None, probed: Sequence[int], version: int) -> None:
        """Look at the weights that it serves now under the number `version`, and begin to watch it.

        `probed` are the ids of a text, `config` says how versions reach the engine, if any do. Raises
        EngineError when no release could be verified, and for other weights than the checkpoint's.
        """
        self.now, self._probed = replace(self.now, version=version), probed[:PROBED]
        first, second = [await asked(self._calls, self.now.name, self._probed) for _ in range(2)]
        if first and second:
            self._seen = Seen(scores=first, noise=distance(first, second))
        if config is not None and config.release:
            if self._seen is None:
                raise EngineError(
                    f"{self._url} gives no log-probabilities of a prompt (prompt_logprobs), so that no "
                    "release there could be verified: name a vLLM, or leave training out"
                )
            base = TensorFiles.open(config.checkpoint)
            self._way = WAYS[config.release](config, self._calls, self.now.name, base)
            scoring = OwnScores.of_checkpoint
            self._own = await asyncio.to_thread(scoring, config.checkpoint, base, self._probed)
            if not self._way.in_place:  # else it may still serve another version of ours
                self._check_base(self._seen)
        if self._seen is not None:
            self._watching = asyncio.create_task(self._watch())

    def _check_base(self, seen: Seen) -> None:
        if self._own is not None and (off := distance(seen.scores, self._own.base)) > OTHER:
            raise EngineError(
                f"{self._url} serves other weights than the checkpoint's: the log-probabilities of a prompt "
                f"differ by {off:.2g}; name the checkpoint that it serves"
            )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Stand]:
        """Yield what stands for one request, whatever is released meanwhile; a failure casts doubt on it."""
        await self._open.wait()
        self._running += 1
        self._idle.clear()
        try:
            if not self._sure or self.held:
                await self.verify()
            yield self.now
        except InvalidRequestError:
            raise
        except EngineError:
            self._sure = False
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def release(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        """Bring a version there; what stood before stands on where it is refused, which raises EngineError,
        WeightsError, CheckpointError or OSError."""
        if self._way is None:
            raise LoadRefusedError(FIXED)
        files = await asyncio.to_thread(self._way.write, version, tensors)
        own = None if self._own is None else await asyncio.to_thread(self._own.of, tensors)
        try:
            if self._way.in_place:
                self._open.clear()
                await self._idle.wait()
            async with self._releasing:
                name = await self._way.load(version, files)
                new = Stand(version=version, name=name, files=files, in_place=self._way.in_place)
                self.now, self.held = await self._shown(new, own, self._way.patience_s), ""
        except EngineError:
            self._sure = False
            raise
        finally:
            self._open.set()

    async def _shown(self, stand: Stand, own: Scores | None, patience_s: float) -> Stand:
        """Return the stand with its scores, once they show the version. Raises EngineError."""
        clock = asyncio.get_running_loop().time
        give_up = clock() + patience_s
        while True:
            try:
                now = await asked(self._calls, stand.name, self._probed)
                why = self._missing(now, stand, own)
            except EngineError as error:
                why = str(error)
            if not why:
                return replace(stand, scores=now)
            if clock() >= give_up:
                raise EngineError(f"version {stand.version} does not show: {why}")
            await asyncio.sleep(POLL_S)

    def _missing(self, now: Scores, stand: Stand, own: Scores | None) -> str:
        """Return the reason why these scores do not show a version that was loaded."""
        assert self._seen is not None
        both = None if own is None or self._own is None else (self._own.base, own)
        if stand.in_place:
            return not_own(now, both) if both else ""
        return self._seen.unseen(now, both) if stand.files else self._seen.why_not(now)

    async def verify(self) -> None:
        """Ask what is served; raise EngineError, and hold the arm, while it is not what was said.

        A version that is gone is released again.
        """
        async with self._releasing:
            held, self.held = self.held, await self._why_held()
            self._sure = not self.held
        if self.held != held:
            log.warning("%s", self.held or f"{self._url} serves version {self.now.version} again")
        if self.held:
            raise EngineError(self.held)

    async def _why_held(self) -> str:
        stand, way = self.now, self._way
        try:
            await cards_of(self._calls)  # nothing is released to an engine that is away
            why = await self._doubt(stand)
            if why and way is not None and stand.scores and not (way.patience_s and self.held):
                log.warning("%s: %s: version %d is released again", self._url, why, stand.version)
                await way.load(stand.version, stand.files)
                why = await self._doubt(stand)
        except EngineError as error:
            why = str(error)
        return why and f"version {stand.version} is held: {self._url}: {why}"

    async def _doubt(self, stand: Stand) -> str:
        """Return the reason why another model than that of `stand` is served; empty when there is none."""
        if self._seen is None:
            return ""
        try:
            now = await asked(self._calls, stand.name, self._probed)
        except EngineError as error:
            return str(error)
        return self._seen.why_not(now, stand.scores) if now else "it gives no log-probabilities any more"

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self.verify()
            except EngineError:  # the reason is kept, and requests get it
                continue

    async def aclose(self) -> None:
        """Watch it no more; the engine goes on."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._way is not None:
            self._way.close()
