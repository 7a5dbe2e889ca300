"""`python -m ostinato.engine.server`: an engine behind HTTP, embedded or (`--vllm`) a real vLLM.

Its environment holds `OSTINATO_ENGINE_SECRET`, which its callers show. It prints one line of JSON to stdout
when it listens, `{"ready": true, "port": …, "version": …}`, and stops on SIGTERM. A missing secret, a wrong
checkpoint, a taken port or a version that cannot be loaded at the start is one line on stderr and exit
code 2.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from ostinato.engine.base import EngineError
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.http import Running, create_app, serve
from ostinato.engine.loader import SyncLoader
from ostinato.engine.vllm.engine import VllmEngine
from ostinato.model.checkpoint import CheckpointError, load, shapes
from ostinato.store import Objects, ObjectsError
from ostinato.sync import Subscriber, SyncError
from ostinato.web.secret import ENGINE_SECRET, take_secret

SWITCH_S = 1e-4
"""How long a thread that fetches weights may keep the interpreter from the one that samples: much less than a
decode step (Python's own 5 ms are ten of them)."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s %(message)s")
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_S)
    secret = take_secret()
    if not secret:
        return _refuse(
            f"{ENGINE_SECRET} is not set: give the engine and the gateway the same random text in it"
        )
    try:
        asyncio.run(_serve(args, secret))
    except (CheckpointError, EngineError, ObjectsError, SyncError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"cannot listen on {args.host}:{args.port}: {error.strerror or error}")
    return 0


async def _serve(args: argparse.Namespace, secret: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ostinato-vllm-") as directory:
        engine = await _engine(args, Path(directory))
        try:
            await _serve_engine(engine, args, secret)
        finally:
            await engine.aclose()


async def _engine(args: argparse.Namespace, directory: Path) -> EmbeddedEngine | VllmEngine:
    sizes = {"slots": args.slots, "max_len": args.max_len}
    if args.vllm is not None:
        return await VllmEngine.start(args.checkpoint, directory, python=args.vllm, **sizes)
    decoder, _, meta = load(args.checkpoint)
    return EmbeddedEngine(decoder, version=meta.version, **sizes)


async def _serve_engine(engine: EmbeddedEngine | VllmEngine, args: argparse.Namespace, secret: str) -> None:
    loader = None
    if args.objects is not None:
        like = shapes(args.checkpoint)
        loader = SyncLoader(engine, Subscriber(Objects.open(args.objects), args.prefix, like=like))
        if args.version is not None:
            await loader.load(args.version)
        if args.follow:
            await loader.catch_up()
    running = await serve(create_app(engine, loader, secret=secret), args.host, args.port)
    following = asyncio.create_task(loader.follow()) if loader and args.follow else None
    _announce(running, engine)
    await _stopped()
    if following is not None:
        following.cancel()
    await running.close()


def _announce(running: Running, engine: EmbeddedEngine | VllmEngine) -> None:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ostinato.engine.server", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="directory in Hugging Face layout")
    parser.add_argument("--objects", help="folder or URL of the object store that new versions come from")
    parser.add_argument("--prefix", default="weights", help="where in the object store")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--follow", action="store_true", help="load every new version as it is published")
    which.add_argument("--version", type=int, help="load this version from the object store at the start")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--vllm", metavar="PYTHON", nargs="?", const=sys.executable, help="serve by vLLM, that of this Python"
    )
    parser.add_argument("--slots", type=int, default=96, help="sequences sampled at once")
    parser.add_argument("--max-len", type=int, default=512, help="tokens of prompt and completion together")
    return parser


if __name__ == "__main__":
    sys.exit(main())
