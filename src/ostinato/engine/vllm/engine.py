"""A real vLLM behind the engine protocol: tokens in, tokens out, weights swapped in flight.

    swap: write to memory ─► workers check ─► pause, requests kept ─► every worker loads its part ─► resume

It serves any directory in Hugging Face layout that vLLM knows: sharded or not, any float type, tied or not.
Routed experts (`--enable-return-routed-experts` among the arguments) need a GPU and were never run.
"""

import asyncio
import base64
import io
import json
import logging
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import aiohttp
import numpy as np
import torch
from torch import Tensor

from ostinato.engine.base import (
    PAUSED,
    ROUTE_DTYPE,
    EngineError,
    InvalidRequestError,
    LoadRefusedError,
    Token,
)
from ostinato.engine.limits import RequestLimits
from ostinato.engine.vllm.handover import digest, room_for
from ostinato.engine.vllm.process import TOKENS, Launch, VllmServer
from ostinato.engine.vllm.speculation import doubt, draft_counts, speculates, trial
from ostinato.model.checkpoint import BUFFERS, HEAD, load_meta
from ostinato.model.config import MOST_EXPERTS
from ostinato.model.decoder import WeightsError, check_weights
from ostinato.model.tensor_files import CONFIG, CheckpointError, TensorFiles, read_json, write_tensors
from ostinato.model.tokenizer import Tokenizer, TokenizerError
from ostinato.types import (
    Abilities,
    Completion,
    Distribution,
    FinishReason,
    GenerateRequest,
    StructureKind,
)

log = logging.getLogger(__name__)
SAMPLING = frozenset(
    "top_p top_k min_p presence_penalty frequency_penalty repetition_penalty".split()  # noqa: SIM905
)
"""The fields of `Sampling`, beside temperature and seed, that vLLM knows by the same names."""
STRUCTURES = {
    StructureKind.JSON_OBJECT: "json_object",
    StructureKind.JSON_SCHEMA: "json",
    StructureKind.REGEX: "regex",
    StructureKind.GRAMMAR: "grammar",
}
"""The field of vLLM's structured outputs for each kind of `Structure`."""
COLDEST = 0.01
"""The lowest temperature above 0 that vLLM samples at: it raises lower ones to this without an error."""
ROUTES = "--enable-return-routed-experts"
EMBEDDING = "model.embed_tokens.weight"
DRAINED_S = 0.01
"""Seconds to wait after a pause, in which all tokens sampled before it arrive through the sockets."""


class VllmEngine:
    """A vLLM server as an engine. Create it by `start`, use it on one event loop, end it with `aclose`."""

    def __init__(
        self, server: VllmServer, limits: RequestLimits, *, version: int, shapes: dict[str, Tensor]
    ) -> None:
        """`shapes` are the weights under Hugging Face names, without values or memory."""
        self.server, self._limits, self._version, self._shapes = server, limits, version, shapes
        self._open = asyncio.Event()
        self._open.set()
        self._swapping = asyncio.Lock()
        self._paused = False
        self._broken = ""
        """The reason why nothing is served any more; empty while all is well."""
        self._counts = dict.fromkeys(("requests", "failed", "tokens", "prompt_tokens", "swaps"), 0)
        self._running = 0
        self._drafts: dict[str, float] | None = None
        """The counts of vLLM's drafts when nothing ran last; None where it does not draft."""

    @classmethod
    async def start(cls, checkpoint: Path, directory: Path, **launch: Any) -> Self:
        """Start vLLM on a directory in Hugging Face layout, and wait until it has sampled a token.

        Its log is written below `directory`; `launch` are the other fields of `Launch`. Raises
        CheckpointError for weights that are missing, damaged or not finite, and EngineError.
        """
        how = Launch(model=checkpoint, logs=directory, **launch)
        limits, shapes = await asyncio.to_thread(_examine, checkpoint, how)
        version = load_meta(checkpoint).version
        server = await VllmServer.start(how)
        engine = cls(server, limits, version=version, shapes=shapes)
        try:
            await engine._label(version)
            await engine._warm_up()
            if speculates(how.arguments):
                await engine._check_speculation(how.dtype)
        except BaseException:
            await engine.aclose()
            raise
        return engine

    @property
    def version(self) -> int:
        return self._version

    @property
    def abilities(self) -> Abilities:
        return self._limits.abilities

    async def generate(self, request: GenerateRequest) -> Completion:
        events = [event async for event in self.stream(request)]
        assert isinstance(events[-1], Completion)
        return events[-1]

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[Token | Completion]:
        self._limits.check(request)
        if 0 < request.sampling.temperature < COLDEST:
            raise InvalidRequestError(
                f"{request.request_id}: vLLM samples at {COLDEST} instead of a temperature of "
                f"{request.sampling.temperature}: ask for 0 or for at least {COLDEST}"
            )
        self._counts["requests"] += 1
        if self._broken:
            self._counts["failed"] += 1
            raise EngineError(self._broken)
        # A request that began during a swap would reuse cached keys of the old version under its cache salt.
        await self._open.wait()
        self._running += 1
        drawn_from = request.sampling.drawn_from if self.abilities.logprobs else Distribution.UNKNOWN
        reply = _Reply(request, drawn_from)
        try:
            async for choice in self._choices(self._body(request)):
                for token in reply.take(choice, self._version):
                    self._counts["tokens"] += 1
                    yield token
            yield reply.completion()
        except EngineError:
            self._counts["failed"] += 1
            raise
        finally:
            self._running -= 1
        if self._drafts is not None and not self._running:
            try:
                self._drafts = await draft_counts(self.server)
            except EngineError as error:  # the request has its answer
                log.warning("what vLLM drafted is not counted: %s", error)

    async def pause(self) -> None:
        """Sample no token until `resume`; requests wait where they are."""
        async with self._swapping:
            self._open.clear()
            await self._halt()
            self._paused = True

    async def resume(self) -> None:
        async with self._swapping:
            await self.server.post("/resume")
            self._paused = False
            self._open.set()

    async def swap(self, version: int, tensors: Mapping[str, Tensor]) -> None:
        async with self._swapping:
            if self._paused:
                raise LoadRefusedError(f"version {version} was refused: {PAUSED}")
            try:
                new = self._fitting(tensors)
                size = sum(tensor.nbytes for tensor in new.values())
                with tempfile.TemporaryDirectory(prefix="ostinato-weights-", dir=room_for(size)) as folder:
                    await self._hand_over(new, Path(folder))
                    await self._load(version, folder)
            except (EngineError, WeightsError, CheckpointError, OSError) as error:
                raise LoadRefusedError(f"version {version} was refused: {error}") from error
            self._counts["swaps"] += 1

    def stats(self) -> dict[str, float]:
        return {
            **self._counts,
            **(self._drafts or {}),
            "version": self._version,
            "running": self._running,
            "paused": self._paused,
        }

    async def aclose(self) -> None:
        """End the server; requests in flight fail with EngineError."""
        await self.server.close()

    def _fitting(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors to load. Raises WeightsError unless they are those of this model."""
        given = dict(tensors)
        if HEAD in self._shapes and EMBEDDING in given:
            given.setdefault(HEAD, given[EMBEDDING])
        elif HEAD in given and EMBEDDING in given and torch.equal(given[HEAD], given[EMBEDDING]):
            del given[HEAD]
        check_weights(self._shapes, given)
        return given

    async def _hand_over(self, new: dict[str, Tensor], folder: Path) -> None:
        """Write the weights where the workers read them, and have them checked; requests go on meanwhile."""
        await asyncio.to_thread(write_tensors, folder, new.items())
        await self.server.call_workers("version_check", str(folder), await asyncio.to_thread(digest, folder))

    async def _load(self, version: int, folder: str) -> None:
        """Load what was handed over. If that fails midway the server ends: its weights are of no version."""
        self._open.clear()
        try:
            await self._halt()
            await self.server.call_workers("version_load", folder)
            await self._label(version)
            self._version = version
            await self.server.post("/resume")
        except BaseException as error:
            self._broken = f"vLLM was ended, since loading version {version} failed midway: {error!r}"
            await self.server.close()
            raise
        finally:
            self._open.set()

    async def _halt(self) -> None:
        """Pause with requests kept, and wait until all tokens sampled before have arrived."""
        await self.server.post("/pause?mode=keep&clear_cache=false")
        await asyncio.sleep(DRAINED_S)

    async def _label(self, version: int) -> None:
        if "/update_weight_version" in self.server.routes:
            await self.server.post("/update_weight_version", {"new_version": str(version)})

    async def _warm_up(self) -> None:
        """Sample a first token, which makes vLLM compile its sampler for up to half a minute."""
        await self.generate(
            GenerateRequest(request_id="", session_id="", prompt_ids=(0,), stop_ids=(), max_tokens=1)
        )

    async def _check_speculation(self, dtype: str) -> None:
        """Serve what is never trained if log-probabilities under speculation are wrong."""
        asked = trial(self._limits.max_len)
        self._drafts = {}
        why = await doubt(self.server, asked, await self.generate(asked), dtype)
        if why:
            log.warning("turns of this engine are recorded and never trained: %s", why)
            self._limits = replace(self._limits, abilities=replace(self.abilities, logprobs=False))

    def _body(self, request: GenerateRequest) -> dict[str, Any]:
        room = self._limits.max_len - len(request.prompt_ids)
        sampling = {
            "temperature": request.sampling.temperature,
            # All of them, since vLLM takes what is left out from the checkpoint's generation_config.json.
            **{name: getattr(request.sampling, name) for name in sorted(SAMPLING)},
            "max_tokens": min(request.max_tokens, room),
            "seed": request.sampling.seed % 2**63,
            "stop_token_ids": list(request.stop_ids),
            "ignore_eos": True,
            "detokenize": False,
            "logprobs": 0,
        }
        if (structure := request.sampling.structure) is not None:
            field = STRUCTURES[structure.kind]
            sampling["structured_outputs"] = {field: structure.text or True}
        salt = f"version {self._version}"
        return {
            "token_ids": list(request.prompt_ids),
            "sampling_params": sampling,
            "cache_salt": salt,
            "stream": True,
        }

    async def _choices(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the choices in the server-sent events of one request."""
        try:
            async with self.server.http.post(TOKENS, json=body) as response:
                if response.status != 200:
                    kind = InvalidRequestError if response.status == 400 else EngineError
                    raise kind(f"vLLM: {response.status} {(await response.text())[:300]}")
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        yield _choice(json.loads(line[6:]))
        except aiohttp.ClientError as error:
            raise EngineError(f"vLLM went away: {error!r}") from error


class _Reply:
    """One completion as it arrives."""

    def __init__(self, request: GenerateRequest, drawn_from: Distribution) -> None:
        self._request, self._drawn_from = request, drawn_from
        self._tokens: list[Token] = []
        self._finish: str | None = None
        self._versions: list[int] | None = None
        self._routes: bytes | None = None

    def take(self, choice: Mapping[str, Any], version: int) -> list[Token]:
        """Return the new tokens of a choice, labelled with the version served now."""
        scores = (choice.get("logprobs") or {}).get("content") or []
        ids = choice.get("token_ids") or []
        new = [
            Token(
                id=id_,
                logprob=score["logprob"],
                version=version,
                distribution=self._drawn_from,
            )
            for id_, score in zip(ids, scores, strict=True)
        ]
        self._tokens += new
        self._finish = choice.get("finish_reason") or self._finish
        spans = choice.get("weight_versions")
        if spans:
            self._versions = [
                int(span["version"]) for span in spans for _ in range(span["start"], span["end"])
            ]
        if choice.get("routed_experts"):
            self._routes = routes_of(choice["routed_experts"])
        return new

    def completion(self) -> Completion:
        """Return the whole completion, with the versions that vLLM reports where it does."""
        if self._finish not in {"stop", "length"}:
            raise EngineError(f"{self._request.request_id}: vLLM ended the request with {self._finish!r}")
        labels = tuple(token.version for token in self._tokens)
        return Completion(
            ids=tuple(token.id for token in self._tokens),
            logprobs=tuple(token.logprob for token in self._tokens),
            versions=labels if self._versions is None else tuple(self._versions),
            finish=FinishReason.STOP if self._finish == "stop" else FinishReason.LENGTH,
            routes=self._routes,
            distribution=self._drawn_from,  # by `--logprobs-mode processed_logprobs`
        )


def _choice(event: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in event:
        raise EngineError(f"vLLM: {event['error']}")
    choices = event.get("choices") or [{}]
    return dict(choices[0])


def routes_of(text: str) -> bytes:
    """Return little-endian uint16 of shape [tokens - 1, moe layers, top_k] from base64 of a numpy file.

    Raises EngineError for numbers that do not fit, which a cast would wrap. Requests to vLLM never asked for
    routes, because that needs a GPU.
    """
    array = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    if array.ndim != 3 or array.dtype.kind not in "iu":
        raise EngineError(
            f"vLLM: routes of shape {array.shape} and type {array.dtype} are not numbers of experts"
        )
    if array.size and not 0 <= array.min() <= array.max() < MOST_EXPERTS:
        raise EngineError(f"vLLM: expert {array.min()} or {array.max()} is not a number below {MOST_EXPERTS}")
    return bytes(array.astype(ROUTE_DTYPE).tobytes())


def _examine(checkpoint: Path, launch: Launch) -> tuple[RequestLimits, dict[str, Tensor]]:
    """Read a checkpoint once, tensor by tensor: its limits, and its weights without values.

    Raises CheckpointError for a missing shard, a damaged file and values that are not finite.
    """
    config = read_json(checkpoint / CONFIG)
    vocabulary = (config.get("text_config") or config).get("vocab_size")
    if not isinstance(vocabulary, int):
        raise CheckpointError(f"{checkpoint}: {CONFIG} has no vocab_size: is this a language model?")
    files = TensorFiles.open(checkpoint)
    deque(files, maxlen=0)  # reads every tensor once, which finds values that are not finite
    shapes = {
        name: torch.empty(entry.shape, dtype=entry.dtype, device="meta")
        for name, entry in files.entries.items()
        if not name.endswith(BUFFERS)
    }
    abilities = Abilities(
        model=checkpoint.name,
        tokenizer=_tokenizer_digest(checkpoint),
        context=launch.max_len,
        sampling=SAMPLING,
        structures=frozenset(STRUCTURES),
        routes=ROUTES in launch.arguments,
    )
    return RequestLimits(vocabulary=vocabulary, max_len=launch.max_len, abilities=abilities), shapes


def _tokenizer_digest(checkpoint: Path) -> str:
    """Return the digest of `tokenizer.json`; empty without that file, as the digest is not known then."""
    if not (checkpoint / "tokenizer.json").exists():
        return ""
    try:
        return Tokenizer.load(checkpoint).digest
    except TokenizerError as error:
        raise CheckpointError(str(error)) from error
