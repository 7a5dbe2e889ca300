"""`ostinato weights`: the versions in an object store, what may go, a copy for another region, an import, and
an MTP layer for vLLM."""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostinato.store import Objects
    from ostinato.sync.mirror import Mirror

DONE, FAILED, WRONG = 0, 1, 2
POLL_S, RETRY_S = 0.5, 5.0
"""Seconds between two looks of a mirror at its source, and after one that failed."""
Command = Callable[["Objects", argparse.Namespace], int]


def register(commands: Any) -> None:
    """Add `weights` and its commands to the subparsers of `ostinato`."""
    parser = commands.add_parser("weights")
    group = parser.add_subparsers(required=True, metavar="COMMAND")
    _command(group, "list", "every version, how it is reached and whether that is still there", _list)
    _command(group, "collect", "remove what no reader needs any more; may run at any time", _collect)
    mirror = _command(group, "mirror", "copy each new version into a region's own store", _mirror)
    mirror.add_argument("target", help="folder or URL of the region's object store")
    mirror.add_argument("--once", action="store_true", help="copy what there is now, then end")
    words = "write a GGUF file or a Hugging Face directory as a checkpoint, in one piece or not at all"
    taken = group.add_parser("import", help=words, description=words)
    taken.add_argument("source", type=Path, help="a GGUF file, or a directory with safetensors")
    taken.add_argument("target", type=Path, help="the directory to make")
    dtypes = ("float32", "bfloat16", "float16")
    taken.add_argument("--dtype", choices=dtypes, help="default: float32 of GGUF, else what it is")
    taken.add_argument("--json", action="store_true", help="print JSON")
    taken.set_defaults(run=_import)
    words = "write a checkpoint's MTP layer in the form that vLLM loads, and print vLLM's arguments for it"
    draft = group.add_parser("draft", help=words, description=words)
    draft.add_argument("checkpoint", type=Path, help="a dense checkpoint with a draft")
    draft.add_argument("target", type=Path, help="the directory to make")
    draft.add_argument("--tokens", type=int, default=3, help="tokens that vLLM drafts in a step")
    draft.add_argument("--json", action="store_true", help="print JSON")
    draft.set_defaults(run=_draft)


def _command(group: Any, name: str, help: str, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=help)
    parser.add_argument("objects", help="folder or URL of the object store, as runs/demo/objects")
    parser.add_argument("--prefix", default="weights", help="where in the object store")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.set_defaults(run=lambda options: _run(command, options))
    return parser


def _run(command: Command, options: argparse.Namespace) -> int:
    from ostinato.store import Objects, ObjectsError
    from ostinato.sync import SyncError

    if "://" not in options.objects and not Path(options.objects).is_dir():
        return _complain(
            WRONG, f"{options.objects} is no folder: name an object store that has been published to"
        )
    try:
        return command(Objects.open(options.objects), options)
    except (ObjectsError, SyncError) as error:
        return _complain(FAILED, str(error))


def _import(options: argparse.Namespace) -> int:
    from ostinato.model.tensor_files import CheckpointError
    from ostinato.model.weights_import import import_weights

    try:
        size = import_weights(options.source, options.target, options.dtype)
    except CheckpointError as error:
        return _complain(FAILED, str(error))
    _print_row({"target": str(options.target), "bytes": size}, options)
    return DONE


def _draft(options: argparse.Namespace) -> int:
    from ostinato.model.mtp_export import export_draft, vllm_arguments
    from ostinato.model.tensor_files import CheckpointError

    try:
        export_draft(options.checkpoint, options.target)
    except CheckpointError as error:
        return _complain(FAILED, str(error))
    arguments = vllm_arguments(options.checkpoint, options.target, options.tokens)
    print(json.dumps(arguments) if options.json else shlex.join(arguments))  # noqa: T201
    return DONE


def _list(objects: "Objects", options: argparse.Namespace) -> int:
    from ostinato.sync.chain.keys import Keys, numbers
    from ostinato.sync.chain.leases import horizon

    keys = Keys(options.prefix)
    versions = sorted(numbers(keys.versions, objects.list(keys.versions)))
    if not versions:
        return _complain(FAILED, f"{objects.where}/{options.prefix} holds no version: check --prefix")
    given_up = horizon(objects, keys)
    for version in versions:
        _print_row(_row(objects, options.prefix, version) | {"kept": version >= given_up}, options)
    return DONE


def _row(objects: "Objects", prefix: str, version: int) -> dict[str, Any]:
    """Return a version in figures; for a damaged one, the error in words."""
    from ostinato.sync import DigestMismatch, Subscriber

    try:
        manifest = Subscriber(objects, prefix, leases=False).manifest(version)
    except DigestMismatch as error:
        return {"version": version, "damaged": str(error)}
    beside = [way for way in manifest.ways if way.version == version]
    return {
        "version": version,
        "kind": manifest.kind,
        "bytes": manifest.size,
        "epoch": manifest.epoch,
        "tensors": len(manifest.tensors),
        "beside": ["anchor" if way.base is None else f"skip from {way.base}" for way in beside],
    }


def _collect(objects: "Objects", options: argparse.Namespace) -> int:
    from ostinato.sync import collect

    _print_row({"removed": asdict(collect(objects, options.prefix))}, options)
    return DONE


def _mirror(objects: "Objects", options: argparse.Namespace) -> int:
    from ostinato.store import Objects
    from ostinato.sync.mirror import Mirror

    mirror = Mirror(objects, Objects.open(options.target), options.prefix)
    if options.once:
        mirror.step()
        _print_row({"version": mirror.version}, options)
        return DONE
    return asyncio.run(_follow(mirror, objects, options))


async def _follow(mirror: "Mirror", objects: "Objects", options: argparse.Namespace) -> int:
    """Mirror for ever; report a source or target that is away for a while, and try it again."""
    from ostinato.store import ObjectsError
    from ostinato.sync import SyncError

    with closing(objects.watch(f"{options.prefix}/versions")) as watch:
        while True:
            try:
                if await asyncio.to_thread(mirror.step):
                    _print_row({"version": mirror.version}, options)
                await watch.wait(POLL_S)
            except (ObjectsError, SyncError) as error:
                _complain(FAILED, f"tries again in {RETRY_S:.0f} s: {error}")
                await asyncio.sleep(RETRY_S)


def _print_row(row: dict[str, Any], options: argparse.Namespace) -> None:
    text = json.dumps(row) if options.json else "  ".join(f"{name} {_cell(row[name])}" for name in row)
    print(text, flush=True)  # noqa: T201


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{value[name]:,} {name}" for name in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _complain(status: int, message: str) -> int:
    print(f"ostinato weights: {message}", file=sys.stderr)  # noqa: T201
    return status
