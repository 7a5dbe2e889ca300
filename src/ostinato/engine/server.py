"""`python -m ostinato.engine.server`: an engine behind HTTP: embedded, a vLLM that it starts, or
one that is already there (`--backend`).

Its environment holds `OSTINATO_ENGINE_SECRET`, which its callers send. It prints one line of JSON to stdout
when it listens, `{"ready": true, "port": …, "version": …}`, and stops on SIGTERM. A missing secret, a wrong
checkpoint, a taken port or a version that cannot be loaded at the start ends it with one line on stderr and
exit status 2.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from ostinato.config import settings_of
from ostinato.engine.base import EngineError
from ostinato.engine.choose import choose_engine
from ostinato.engine.config import BACKENDS, REMOTE_KEY, EngineServerConfig
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.http import Running, create_app, serve
from ostinato.engine.loader import SyncLoader
from ostinato.engine.machine import free_bytes, gpus, precision_here
from ostinato.engine.remote.engine import RemoteEngine
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.engine.vllm.speculation import drafting
from ostinato.extend import failure
from ostinato.model.checkpoint import load, shapes
from ostinato.model.config import ModelConfig, ModelConfigError
from ostinato.model.mtp import has_draft, load_draft
from ostinato.model.tensor_files import CONFIG, CheckpointError, read_json
from ostinato.model.tokenizer import Tokenizer, TokenizerError
from ostinato.store import Objects, ObjectsError
from ostinato.sync import Subscriber, SyncError
from ostinato.web.secret import ENGINE_SECRET, take_secret

log = logging.getLogger(__name__)
Served = EmbeddedEngine | VllmEngine | RemoteEngine
SWITCH_S = 1e-4
"""The time that a thread which fetches weights may keep the interpreter from sampling. It is much less than a
decode step; Python's default of 5 ms would be ten of them."""


def main(argv: Sequence[str] | None = None) -> int:
    config = settings_of(EngineServerConfig, argv, "python -m ostinato.engine.server", __doc__)
    logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s %(message)s")
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_S)
    secret = take_secret()
    if not secret:
        return _refuse(
            f"{ENGINE_SECRET} is not set: give the engine and the gateway the same random text in it"
        )
    try:
        asyncio.run(_serve(config, secret))
    except (CheckpointError, EngineError, ObjectsError, SyncError, TokenizerError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}")
    return 0


async def _serve(config: EngineServerConfig, secret: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ostinato-vllm-") as directory:
        try:
            engine = await _engine(config, Path(directory))
        except EngineError:
            _copy_logs(Path(directory))
            raise
        try:
            await _serve_engine(engine, config, secret)
        finally:
            await engine.aclose()


def _copy_logs(directory: Path) -> None:
    """Write the logs of a process that did not start to our own, since theirs go with the directory."""
    for path in directory.glob("*.log"):
        sys.stderr.write(path.read_text(errors="replace"))


async def _engine(config: EngineServerConfig, directory: Path) -> Served:
    if config.remote is not None:
        return await RemoteEngine.connect(
            config.remote,
            Tokenizer.load(config.checkpoint),
            key=os.environ.pop(REMOTE_KEY, ""),
            version=0 if config.release else config.version or 0,
            config=config,
        )
    if (make := BACKENDS[config.backend]) is not None:
        try:
            engine: Served = await make(config)
        except Exception as error:
            what = f"the engine {config.backend}"
            raise EngineError(str(failure(what, BACKENDS.plugin(config.backend), error))) from error
        return engine
    if _backend(config) == "vllm":
        if config.draft == "mtp":
            raise EngineError(
                "draft mtp is the embedded engine's: give vLLM the layers of a checkpoint it knows by "
                "`--arguments=--speculative-config=…`"
            )
        return await VllmEngine.start(
            config.checkpoint,
            directory,
            python=config.python or sys.executable,
            slots=config.slots,
            max_len=config.max_len,
            dtype=precision_here().dtype if config.dtype == "auto" else config.dtype,
            tensor_parallel=config.tensor_parallel,
            eager=not gpus(),
            arguments=(
                *(drafting(config.draft_tokens) if config.draft == "suffix" else ()),
                *config.arguments,
            ),
        )
    decoder, tokenizer, meta = load(config.checkpoint)
    draft = None
    if config.draft == "mtp" or (config.draft == "auto" and has_draft(config.checkpoint)):
        draft = load_draft(config.checkpoint, decoder.config, tokenizer=tokenizer.digest)
    return EmbeddedEngine(
        decoder,
        version=meta.version,
        slots=config.slots,
        max_len=config.max_len,
        model=config.checkpoint.name,
        tokenizer=tokenizer.digest,
        drafts=0 if config.draft == "none" else config.draft_tokens,
        draft=draft,
    )


def _backend(config: EngineServerConfig) -> str:
    """Return what `backend` means for this checkpoint and machine.

    Raises CheckpointError for a directory that is no checkpoint.
    """
    if config.backend != "auto":
        return config.backend
    if config.for_vllm:
        return "vllm"
    shape, unknown = None, ""
    try:
        shape = ModelConfig.from_hf(read_json(config.checkpoint / CONFIG))
    except ModelConfigError as error:
        unknown = str(error)
    installed = config.python is not None or find_spec("vllm") is not None
    choice = choose_engine(shape, gpu=bool(gpus()), free_bytes=free_bytes(), vllm=installed, unknown=unknown)
    log.info("%s serves %s: %s", choice.backend, config.checkpoint, choice.reason)
    return choice.backend


async def _serve_engine(engine: Served, config: EngineServerConfig, secret: str) -> None:
    loader = None
    if config.objects is not None:
        # vLLM takes any float type, so its own check of names and shapes is the one that counts.
        like = shapes(config.checkpoint) if isinstance(engine, EmbeddedEngine) else None
        loader = SyncLoader(engine, Subscriber(Objects.open(config.objects), config.prefix, like=like))
        if config.version is not None:
            await loader.load(config.version)
        if config.follow:
            await loader.catch_up()
    running = await serve(create_app(engine, loader, secret=secret), config.host, config.port)
    following = asyncio.create_task(loader.follow()) if loader and config.follow else None
    _announce(running, engine)
    await _stopped()
    if following is not None:
        following.cancel()
    await running.close()


def _announce(running: Running, engine: Served) -> None:
    line = {"ready": True, "port": running.port, "version": engine.version}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _stopped() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await stop.wait()


def _refuse(message: str) -> int:
    sys.stderr.write(f"engine: {' '.join(message.split())}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
