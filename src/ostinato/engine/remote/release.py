"""The ways on which a trained version reaches an engine that somebody else started.

::

    adapter   LoRA files ─► /v1/load_lora_adapter, under NAME@VERSION    beside the others, by name
    hook      a checkpoint ─► the team's command                         in place, or beside under that name
    weights   a checkpoint ─► /pause, vLLM's workers load it, /resume    in place

The files lie in a folder that the engine reads under the same path.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ostinato.engine.base import EngineError
from ostinato.engine.config import EngineServerConfig
from ostinato.engine.remote.adapter import write_adapter
from ostinato.engine.vllm.calls import VllmCalls
from ostinato.engine.vllm.handover import digest
from ostinato.model.checkpoint import HEAD
from ostinato.model.tensor_files import TensorFiles, copy_companions, write_tensors

FOR_ADAPTERS = (
    "start vLLM with --enable-lora, a --max-lora-rank that is large enough and "
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING=true, where it reads that path ([engine] released)"
)
FOR_WEIGHTS = (
    "start vLLM with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls "
    "ostinato.engine.vllm.worker.Versions, with ostinato on its PYTHONPATH, or set [engine] release to "
    "adapter or hook"
)


async def cards_of(calls: VllmCalls) -> dict[str, dict[str, Any]]:
    """Return what an engine says of each model and adapter that it serves, by its name."""
    return {card["id"]: card for card in (await calls.get("/v1/models"))["data"]}


class Releaser:
    """A way to one engine, which serves `model`: that of adapters, which lie beside each other."""

    in_place = False
    """The engine serves one version at a time, so that no request may run meanwhile."""
    patience_s = 0.0
    """The seconds after `load` in which the engine may begin to serve the version. Such a load is not done
    again and again while the version does not show."""

    def __init__(self, config: EngineServerConfig, calls: VllmCalls, model: str, base: TensorFiles) -> None:
        assert config.released is not None  # the settings have been checked
        config.released.mkdir(parents=True, exist_ok=True)
        self._config, self._calls, self._model, self._base = config, calls, model, base
        self._folder = config.released

    def _name(self, version: int) -> str:
        return f"{self._config.label}@{version}"

    def write(self, version: int, tensors: Mapping[str, Tensor]) -> Path | None:
        """Write the files of a version; None for the weights that the engine was started with."""
        return write_adapter(self._base, tensors, self._folder, self._name(version))

    async def load(self, version: int, files: Path | None) -> str:
        """Let the engine load them; return the name by which it serves them. May be done again."""
        if files is None:
            return self._model
        name = self._name(version)
        card = (await cards_of(self._calls)).get(name)
        if card is not None and card["root"] != str(files):
            raise EngineError(
                f"it serves another adapter as {name}, from {card['root']}: unload it there "
                "(/v1/unload_lora_adapter), or rename the run folder"
            )
        if card is None:
            words = {"lora_name": name, "lora_path": str(files)}
            try:
                await self._calls.text("/v1/load_lora_adapter", words)
            except EngineError as error:
                if "already been loaded" not in str(error):  # by another engine server of ours, just now
                    raise EngineError(f"{error}: {FOR_ADAPTERS}") from error
        return name

    def close(self) -> None:
        """Remove the files that nobody needs any more. Adapters stay: vLLM reads one again that had no room,
        and other arms may serve it."""


class _WholeWeights(Releaser):
    """Checkpoints in a directory that goes with this process."""

    in_place = True

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self._config.label}-", dir=self._folder))
        self._folder.chmod(0o755)  # the engine may run as another user

    def write(self, version: int, tensors: Mapping[str, Tensor]) -> Path:
        for old in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-1]:
            shutil.rmtree(old)  # the last one is loaded again where this one is refused
        target, tied = self._folder / self._name(version), HEAD not in self._base.entries
        copy_companions(self._config.checkpoint, target)
        write_tensors(target, ((n, t) for n, t in tensors.items() if not (tied and n == HEAD)))
        return target

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class _Hook(_WholeWeights):
    """The team's own command, with the directory, the version and the engine's address as arguments."""

    patience_s = 480.0

    async def load(self, version: int, files: Path | None) -> str:
        words = [*self._config.on_release, str(files), str(version), str(self._config.remote)]
        nothing = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(*words, stdin=nothing, stdout=sys.stderr)
        except OSError as error:
            raise EngineError(f"[engine] on_release, {words[0]}, cannot be run: {error.strerror}") from error
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if status:
            raise EngineError(f"[engine] on_release ended with status {status}: {' '.join(words)}")
        own = self._name(version)
        return own if own in await cards_of(self._calls) else self._model


class _Workers(_WholeWeights):
    """vLLM's workers load the version in place of the one before, where they were started for that."""

    async def load(self, version: int, files: Path | None) -> str:
        assert files is not None
        if lacking := await self._calls.lacks():
            raise EngineError(f"it has no {', '.join(lacking)}: {FOR_WEIGHTS}")
        try:
            await self._calls.call_workers(
                "version_check", str(files), await asyncio.to_thread(digest, files)
            )
        except EngineError as error:
            raise EngineError(f"{error}: {FOR_WEIGHTS}") from error
        await self._calls.post("/pause?mode=keep&clear_cache=false")
        try:
            await self._calls.call_workers("version_load", str(files))
        finally:
            await self._calls.post("/resume")
        return self._model


WAYS = {"adapter": Releaser, "hook": _Hook, "weights": _Workers}
