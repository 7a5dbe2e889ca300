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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ostinato.engine.base import EngineError
from ostinato.engine.config import EngineServerConfig
from ostinato.engine.remote.adapter import write_adapter
from ostinato.engine.vllm.calls import VllmCalls
from ostinato.engine.vllm.handover import digest
from ostinato.model.checkpoint import HEAD
from ostinato.model.tensor_files import TensorFiles, copy_companions, write_tensors

START = (
    "start vLLM with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls "
    "ostinato.engine.vllm.worker.Versions, with ostinato on its PYTHONPATH, or set [engine] release to "
    "adapter or hook"
)
HOOK_S, AT_ONCE_S = 480.0, 0.0
"""The seconds after a command in which an engine may begin to serve the version."""


class Way(Protocol):
    """One of the ways, to one engine."""

    in_place: bool
    """The engine serves one version at a time, so that no request may run meanwhile."""
    patience_s: float
    """The seconds after `load` in which the engine may begin to serve the version."""

    repeats: bool
    """The version may be loaded again and again while it does not show."""

    def write(self, version: int, tensors: Mapping[str, Tensor]) -> Path | None:
        """Write the files of a version; None for the weights that the engine was started with."""

    async def load(self, version: int, files: Path | None) -> str:
        """Let the engine load them; return the name by which it serves them. May be done again."""

    def close(self) -> None:
        """Remove the files that nobody needs any more."""


def way_to(config: EngineServerConfig, calls: VllmCalls, model: str, base: TensorFiles) -> Way:
    """Return the way that `config` names to the engine that serves `model`."""
    assert config.released is not None and config.remote is not None  # the settings have been checked
    config.released.mkdir(parents=True, exist_ok=True)
    if config.release == "adapter":
        return Adapters(calls, model, base, config.released, config.label)
    whole = Checkpoints(config.checkpoint, base, config.released, config.label)
    if config.release == "hook":
        return Hook(calls, model, whole, config.on_release, config.remote)
    return Weights(calls, model, whole)


async def cards_of(calls: VllmCalls) -> list[dict[str, Any]]:
    """Return what the engine says of each model and adapter that it serves."""
    return list((await calls.get("/v1/models"))["data"])


class Adapters:
    """Adapters under names that never mean another version, beside the model that they are added to."""

    in_place, patience_s, repeats = False, AT_ONCE_S, True

    def __init__(self, calls: VllmCalls, model: str, base: TensorFiles, folder: Path, label: str) -> None:
        self._calls, self._model, self._base, self._folder, self._label = calls, model, base, folder, label

    def write(self, version: int, tensors: Mapping[str, Tensor]) -> Path | None:
        return write_adapter(self._base, tensors, self._folder, f"{self._label}@{version}")

    async def load(self, version: int, files: Path | None) -> str:
        if files is None:
            return self._model
        name = f"{self._label}@{version}"
        there = {card["id"]: str(card.get("root")) for card in await cards_of(self._calls)}
        if name not in there:
            await self._load(name, files)
        elif there[name] != str(files):
            raise EngineError(
                f"it serves another adapter as {name}, from {there[name]}: unload it there "
                "(/v1/unload_lora_adapter), or rename the run folder"
            )
        return name

    async def _load(self, name: str, files: Path) -> None:
        try:
            await self._calls.text("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(files)})
        except EngineError as error:
            if "already been loaded" in str(error):  # by another engine server of ours, just now
                return
            raise EngineError(
                f"{error}: start vLLM with --enable-lora, a --max-lora-rank that is large enough and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=true, where it reads that path ([engine] released)"
            ) from error

    def close(self) -> None:
        """Leave the adapters: vLLM reads one again that had no room, and other arms may serve it."""


class Checkpoints:
    """The newest version as a whole checkpoint, in a directory that goes with this process."""

    def __init__(self, checkpoint: Path, base: TensorFiles, folder: Path, label: str) -> None:
        self._checkpoint, self._base, self.label = checkpoint, base, label
        self._folder = Path(tempfile.mkdtemp(prefix=f"{label}-", dir=folder))
        self._folder.chmod(0o755)  # the engine may run as another user

    def write(self, version: int, tensors: Mapping[str, Tensor]) -> Path:
        target = self._folder / f"{self.label}@{version}"
        for old in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-1]:
            shutil.rmtree(old)  # the last one is loaded again where this one is refused
        copy_companions(self._checkpoint, target)
        # an output matrix that is the embedding stands in the checkpoint's files once
        tied = HEAD not in self._base.entries
        write_tensors(target, ((n, t) for n, t in tensors.items() if not (tied and n == HEAD)))
        return target

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class Hook:
    """The team's own command, with the directory, the version and the engine's address as arguments."""

    in_place, patience_s, repeats = True, HOOK_S, False

    def __init__(
        self, calls: VllmCalls, model: str, whole: Checkpoints, command: Sequence[str], url: str
    ) -> None:
        self._calls, self._model, self._whole, self._command, self._url = calls, model, whole, command, url
        self.write, self.close = whole.write, whole.close

    async def load(self, version: int, files: Path | None) -> str:
        words = [*self._command, str(files), str(version), self._url]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr
            )
        except OSError as error:
            raise EngineError(f"[engine] on_release, {words[0]}, cannot be run: {error.strerror}") from error
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if status:
            raise EngineError(f"[engine] on_release ended with status {status}: {' '.join(words)}")
        names = [card["id"] for card in await cards_of(self._calls)]
        own = f"{self._whole.label}@{version}"
        if own not in names and self._model not in names:
            raise EngineError(f"it serves {names}, neither {own} nor {self._model}")
        return own if own in names else self._model


class Weights:
    """vLLM's workers load the version in place of the one before, where they were started for that."""

    in_place, patience_s, repeats = True, AT_ONCE_S, True

    def __init__(self, calls: VllmCalls, model: str, whole: Checkpoints) -> None:
        self._calls, self._model = calls, model
        self.write, self.close = whole.write, whole.close

    async def load(self, version: int, files: Path | None) -> str:
        if lacking := await self._calls.lacks():
            raise EngineError(f"it has no {', '.join(lacking)}: {START}")
        assert files is not None
        checked = await asyncio.to_thread(digest, files)
        try:
            await self._calls.call_workers("version_check", str(files), checked)
        except EngineError as error:
            raise EngineError(f"{error}: {START}") from error
        await self._calls.post("/pause?mode=keep&clear_cache=false")
        try:
            await self._calls.call_workers("version_load", str(files))
        finally:
            await self._calls.post("/resume")
        return self._model
