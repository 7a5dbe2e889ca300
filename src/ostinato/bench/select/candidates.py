"""Open candidates: a checkpoint in this process, or the server of one, behind the protocol of `base`."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ostinato.bench.select.base import NotPossibleError, Prompt, SelectError, Window
from ostinato.engine.base import Engine, EngineError, Token
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.remote.engine import RemoteEngine
from ostinato.model.checkpoint import load
from ostinato.model.tensor_files import CheckpointError
from ostinato.model.tokenizer import Tokenizer
from ostinato.train.batch import ScoredRow
from ostinato.train.local import DecoderModel
from ostinato.types import GenerateRequest, Sampling, new_id

CONTEXT, SLOTS, DRAFTS = 4096, 4, 7
TAIL = 24
"""Tokens whose text is searched for the end of an answer, the last of those so far."""
Score = Callable[[Sequence[Window]], Awaitable[list[Sequence[float]]]]


class EngineCandidate:
    """A candidate that an engine samples from, and that `score` scores."""

    def __init__(self, name: str, tokenizer: Tokenizer, engine: Engine, score: Score) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.context = engine.abilities.context
        self.read = self.sampled = 0
        self._engine, self._score = engine, score

    async def complete(self, prompts: Sequence[Prompt]) -> list[str]:
        asked = [tuple(self.tokenizer.encode_untrusted(prompt.text)) for prompt in prompts]
        room = [self.context - len(ids) for ids in asked]
        if room and min(room) < 1:
            raise NotPossibleError(
                f"{self.name}: a prompt has {max(map(len, asked))} tokens, and its context {self.context}: "
                "ask for less, or serve it with a longer context"
            )
        slots = asyncio.Semaphore(SLOTS)

        async def answer(prompt: Prompt, ids: tuple[int, ...], room: int) -> str:
            async with slots:
                return await self._answer(prompt, ids, room)

        return await asyncio.gather(*map(answer, prompts, asked, room))

    async def _answer(self, prompt: Prompt, ids: tuple[int, ...], room: int) -> str:
        """Return what the model says until the end, the most characters, or the end of its context."""
        self.read += len(ids)
        name = new_id()
        request = GenerateRequest(
            request_id=name,
            session_id=name,
            prompt_ids=ids,
            stop_ids=tuple(sorted(self.tokenizer.control_ids)),
            max_tokens=min(room, prompt.most),
            sampling=Sampling(temperature=0.0),
        )
        said: list[int] = []
        stream = self._engine.stream(request)
        try:
            async for event in stream:
                if not isinstance(event, Token):
                    break
                said.append(event.id)
                if prompt.end in self.tokenizer.decode(said[-TAIL:]):
                    break
                if not len(said) % TAIL and len(self.tokenizer.decode(said)) > prompt.most:
                    break
        except EngineError as error:
            raise NotPossibleError(f"{self.name}: {error}") from error
        finally:
            await stream.aclose()
        self.sampled += len(said)
        text = self.tokenizer.decode([id_ for id_ in said if id_ not in self.tokenizer.control_ids])
        return text.partition(prompt.end)[0][: prompt.most]

    async def logprobs(self, windows: Sequence[Window]) -> list[Sequence[float]]:
        self.read += sum(len(window.ids) for window in windows)
        return await self._score(windows)


@asynccontextmanager
async def open_local(name: str, directory: Path, most: int = CONTEXT) -> AsyncIterator[EngineCandidate]:
    """Open a checkpoint in this process. Raises SelectError for one that our decoder cannot express."""
    try:
        decoder, tokenizer, _ = load(directory)
    except CheckpointError as error:
        raise SelectError(
            f"{name} cannot be opened here ({error}): a model of another make can be served by vLLM, and "
            f"named {name}@http://HOST:PORT"
        ) from error
    longest = min(most, decoder.config.max_positions)
    engine = EmbeddedEngine(decoder, version=0, slots=SLOTS, max_len=longest, drafts=DRAFTS)
    with tempfile.TemporaryDirectory() as states:
        model = DecoderModel(decoder, Path(states))

        async def score(windows: Sequence[Window]) -> list[Sequence[float]]:
            found: list[Sequence[float]] = []
            for window in windows:  # one at a time, which bounds the memory by one window
                counted = (False,) * window.first + (True,) * (len(window.ids) - window.first)
                (row,) = model.logprobs([ScoredRow(ids=window.ids, counted=counted)])
                found.append(row.tolist())
            return found

        try:
            yield EngineCandidate(name, tokenizer, engine, score)
        finally:
            await engine.aclose()


@asynccontextmanager
async def open_served(name: str, url: str, directory: Path, key: str) -> AsyncIterator[EngineCandidate]:
    """Open the server of a checkpoint, whose tokenizer lies in `directory`. Raises EngineError."""
    tokenizer = Tokenizer.load(directory)
    engine = await RemoteEngine.connect(url, tokenizer, key=key)

    async def score(windows: Sequence[Window]) -> list[Sequence[float]]:
        found: list[Sequence[float]] = []
        for window in windows:
            try:
                scores = await engine.logprobs(window.ids)
            except EngineError as error:
                raise NotPossibleError(f"{name}: {error}") from error
            if scores is None:
                raise NotPossibleError(f"{name}: {url} tells no log-probabilities of a prompt, as vLLM does")
            found.append(scores[window.first - 1 :])
        return found

    try:
        yield EngineCandidate(name, tokenizer, engine, score)
    finally:
        await engine.aclose()
