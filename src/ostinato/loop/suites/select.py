"""`ostinato select`: which of several open models to begin with."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ostinato import extras
from ostinato.bench.select.base import Instrument, ModelReading, SelectError
from ostinato.bench.select.figures import PairedTable, reading, table, text
from ostinato.bench.select.knowledge import FreshKnowledge, Library, fresh_knowledge
from ostinato.bench.select.loss import CodebaseLoss
from ostinato.bench.select.state import tracked
from ostinato.config import secret
from ostinato.engine.base import EngineError
from ostinato.loop.hub import find_model
from ostinato.mining.archive import newest, read_files
from ostinato.mining.base import repository_name
from ostinato.sandbox.choose import KINDS, choose_backend
from ostinato.web.origin import is_loopback
from ostinato.web.port import root_of

if TYPE_CHECKING:
    from ostinato.bench.select.candidates import EngineCandidate

DONE = 0
KEY = "OSTINATO_SELECT_KEY"
TEXT = (".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".rs", ".go", ".js", ".ts", ".java", ".rb", ".sh", ".sql")
"""The endings of the files that count as code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model as a person names it.

    >>> NamedModel.read("Qwen/Qwen3-8B@http://127.0.0.1:8000").url
    'http://127.0.0.1:8000'
    """

    name: str
    checkpoint: str
    """A directory, or a name on the hub."""
    url: str = ""
    """The server of it; empty for a model that is opened in this process."""

    @classmethod
    def read(cls, word: str) -> "NamedModel":
        """Read CHECKPOINT or CHECKPOINT@URL. Raises SelectError."""

        checkpoint, at, url = word.partition("@")
        if not checkpoint or (at and not url.startswith(("http://", "https://"))):
            raise SelectError(f"{word!r} is no CHECKPOINT and no CHECKPOINT@http://HOST:PORT")
        return cls(name=word, checkpoint=checkpoint, url=root_of(url))


def register(commands: Any) -> None:
    """Add `select` to the subparsers of `ostinato`."""
    parser = commands.add_parser(
        "select",
        description=(
            "Compare open models as bases to train: what they know of libraries, how well they follow "
            "changes to a file, and how well they predict a codebase. Figures of coding agents are left "
            "out, since practice changes those most."
        ),
    )
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a directory in Hugging Face layout, a hub name, or CHECKPOINT@URL of a vLLM with it",
    )
    parser.add_argument(
        "--code", type=Path, metavar="PATH", help="a codebase that no model has seen: folder or archive"
    )
    parser.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="ARCHIVE[@DATE]",
        help="the source archive of a library, and its release as 2026-03-01 (default: its newest file's)",
    )
    parser.add_argument(
        "--cutoff",
        action="append",
        default=[],
        metavar="MODEL=DATE",
        help="when the knowledge of a MODEL ends",
    )
    parser.add_argument(
        "--send-code", action="store_true", help="let a --code leave this machine, to the URLs named"
    )
    parser.add_argument("--key-file", type=Path, help=f"file with the key of every URL (or set {KEY})")
    parser.add_argument("--questions", type=int, default=20, help="questions on each library at most")
    parser.add_argument("--files", type=int, default=24, help="files to track at most")
    parser.add_argument("--lines", type=int, default=20, help="lines of a tracked file")
    parser.add_argument("--changes", type=int, default=6, help="changes to a tracked file")
    parser.add_argument(
        "--code-bytes", type=int, default=200_000, help="bytes of the codebase to predict at most"
    )
    parser.add_argument(
        "--window", type=int, default=1024, help="tokens that a model sees at once of the codebase"
    )
    parser.add_argument("--sandbox", choices=["auto", *KINDS], default="auto", help="where libraries run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    models = [NamedModel.read(word) for word in options.models]
    if len({model.name for model in models}) < len(models):
        raise SelectError("a model is named twice: name each once")
    if options.code is None and not options.library:
        raise SelectError("nothing to measure with: give --code PATH, --library ARCHIVE, or both")
    sizes = ("questions", "files", "changes", "code_bytes")
    if min(getattr(options, name) for name in sizes) < 1 or options.lines < 3 or options.window < 2:
        raise SelectError(
            "--questions, --files, --changes and --code-bytes are at least 1, --window 2, --lines 3"
        )
    _refuse_to_send(models, options)
    cutoffs = _cutoffs(options.cutoff, models)
    extras.need("torch", "`ostinato select`")
    tables = asyncio.run(choose(models, options, cutoffs))
    print(json.dumps([each.as_json() for each in tables]) if options.json else text(tables))  # noqa: T201
    return DONE


def _refuse_to_send(models: Sequence[NamedModel], options: argparse.Namespace) -> None:
    """Raise SelectError before code goes to another machine that nobody allowed."""

    away = [
        model.url for model in models if model.url and not is_loopback(urlsplit(model.url).hostname or "")
    ]
    if options.code is not None and away and not options.send_code:
        raise SelectError(
            f"{options.code} would be sent to {away[0]}, which is not this machine: serve the model here, "
            "leave --code out, or allow it by --send-code"
        )


def _cutoffs(words: Sequence[str], models: Sequence[NamedModel]) -> dict[str, str]:
    found = {}
    for word in words:
        name, _, day = word.rpartition("=")
        if name not in {model.name for model in models}:
            raise SelectError(f"--cutoff {word}: {name or 'no model'} is none of the models")
        found[name] = _day(day, f"--cutoff {word}")
    return found


def _day(text: str, where: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise SelectError(f"{where}: {text!r} is no date as 2026-03-01") from error


async def choose(
    models: Sequence[NamedModel], options: argparse.Namespace, cutoffs: Mapping[str, str]
) -> list[PairedTable]:
    """Use every instrument on one model after another, so that one at a time is in memory.

    A model that cannot be opened has no figure. Raises SelectError when none can.
    """
    folders = {each.name: find_model(each.checkpoint, tokenizer_only=bool(each.url)) for each in models}
    async with AsyncExitStack() as stack:
        instruments = await _instruments(options, stack)
        readings: list[dict[str, ModelReading | str]] = [{} for _ in instruments]
        for model in models:
            async with AsyncExitStack() as opened:
                try:
                    opening = _opened(model, folders[model.name], options)
                    candidate = await opened.enter_async_context(opening)
                except (SelectError, EngineError) as error:
                    for found in readings:
                        found[model.name] = str(error)
                    continue
                for instrument, found in zip(instruments, readings, strict=True):
                    print(f"{model.name}: {instrument.name}", file=sys.stderr, flush=True)  # noqa: T201
                    found[model.name] = await reading(instrument, candidate)
        whys = [each for found in readings for each in found.values()]
        if all(isinstance(each, str) for each in whys):
            raise SelectError("; ".join(dict.fromkeys(map(str, whys))))
        return [
            table(instrument, found, _parts(instrument, cutoffs))
            for instrument, found in zip(instruments, readings, strict=True)
        ]


def _opened(
    model: NamedModel, directory: Path, options: argparse.Namespace
) -> "AbstractAsyncContextManager[EngineCandidate]":
    from ostinato.bench.select.candidates import open_local, open_served

    if model.url:
        return open_served(model.name, model.url, directory, secret(options.key_file, KEY))
    return open_local(model.name, directory)


async def _instruments(options: argparse.Namespace, stack: AsyncExitStack) -> list[Instrument]:
    made: list[Instrument] = []
    libraries = [_library(word) for word in options.library]
    files, facts = codebase(options.code, options.code_bytes) if options.code is not None else ({}, {})
    if libraries:
        backend = await choose_backend(options.sandbox)
        stack.push_async_callback(backend.aclose)
        made.append(await fresh_knowledge(backend, libraries, options.questions))
    if files:
        size = {"number": options.files, "lines": options.lines, "changes": options.changes}
        made += [
            tracked(files, **size),
            CodebaseLoss(files=files, window=options.window, facts=facts),
        ]
    return made


def _library(word: str) -> Library:
    """Read ARCHIVE or ARCHIVE@DATE. Raises SelectError and MiningError."""

    name, _, day = (word, "", "") if Path(word).exists() else word.rpartition("@")
    path = Path(name)
    files, stem = read_files(path)
    released = _day(day, f"--library {word}") if day else newest(path)
    if not released:
        raise SelectError(
            f"--library {word}: a folder does not say when it was released: write {word}@2026-03-01"
        )
    return Library(name=repository_name(stem), released=released, files=files)


def codebase(path: Path, most: int) -> tuple[dict[str, str], dict[str, int]]:
    """Return the code below a folder or in an archive, in the order of its paths up to `most` bytes.

    Beside it are the numbers of files taken, and of those left out. Raises SelectError for none.
    """

    found = dict[str, str]()
    left = Counter({"no code": 0, "no UTF-8": 0, "empty": 0, "beyond --code-bytes": 0})
    for name, data in sorted(read_files(path, left)[0].items(), key=lambda item: item[0].encode()):
        why = "" if name.endswith(TEXT) else "no code"
        try:
            text = data.decode()
        except UnicodeDecodeError:
            why = why or "no UTF-8"
        why = why or ("" if data.strip() else "empty")
        if not why and len(data) > most:
            why = "beyond --code-bytes"
        if why:
            left[why] += 1
            continue
        most -= len(data)
        found[name] = text
    if not found:
        reasons = ", ".join(f"{count} {why}" for why, count in left.items() if count) or "it is empty"
        raise SelectError(f"--code {path}: no file of it can be used ({reasons})")
    return found, {"files": len(found), "bytes": sum(len(text.encode()) for text in found.values()), **left}


def _parts(instrument: Instrument, cutoffs: Mapping[str, str]) -> dict[str, dict[str, list[bool]]]:
    """Return which questions are on libraries older than a model's cut-off, and which on newer ones."""

    if not isinstance(instrument, FreshKnowledge):
        return {}
    days = [question.released for question in instrument.questions]
    return {
        name: {"older": [day <= end for day in days], "newer": [day > end for day in days]}
        for name, end in cutoffs.items()
    }
