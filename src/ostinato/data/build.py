"""The build of a corpus: trees to files, files to documents, documents to shards, and the card.

::

    gather   a tree at a time: licence, type, encoding, quality, secrets, fence   ─► OUT.part/trees/KEY
    choose   over all trees, held-out sources first: exact and near copies
    write    some trees at a time: tokens and the ends of documents               ─► OUT.part/NAME-00000.npy
    finish   card.json, card.md; OUT.part becomes OUT

Each file appears whole or not at all, and follows from settings, trees and tokenizer alone. A build
that was killed goes on with what is there, and ends in the same bytes as one that was not.
"""

import hashlib
import io
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from ostinato.config import dump
from ostinato.data.card import FileTally, written
from ostinato.data.config import CorpusConfig, CorpusError, CorpusSource
from ostinato.data.documents import Encoder, Marks, document
from ostinato.data.duplicates import Copies
from ostinato.data.fence import FENCED, Fence
from ostinato.data.filters import LICENCE, filtered
from ostinato.data.licences import allowed
from ostinato.data.sources import (
    SessionText,
    TextTree,
    files_of,
    licence_shown,
    shows_licence,
    trees_of,
)
from ostinato.store.objects import flush

SHARD_BYTES = 2**26
"""The bytes of text from which the next tree begins a new shard."""
log = logging.getLogger(__name__)
LoadEncoder = Callable[[Path], Encoder]
TaskTexts = Callable[[Path], Iterable[str]]
"""Returns the texts that the tasks at a place are measured by."""
_Text = tuple[str, Sequence[tuple[str, str]]]
"""The name of a tree, and the paths and texts of the files that make one document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    """The files of a tree that were let through, sorted by path, and what became of the others."""

    licence: str
    files: Sequence[tuple[str, str]] = ()
    tally: FileTally = field(default_factory=FileTally)


_Chosen = Sequence[tuple[TextTree, Sequence[int]]]
"""The numbers of the files of each tree that are no copies."""


def build(config: CorpusConfig, out: Path, load: LoadEncoder, texts: TaskTexts) -> dict[str, Any]:
    """Build the corpus `out` and return its card. Raises CorpusError, and leaves nothing at `out` then."""
    if out.exists():
        raise CorpusError(f"{out} exists already, and corpora never change: name another folder")
    encoder = load(config.tokenizer)
    marks = Marks.of(encoder, holes=config.fill_in_the_middle > 0)
    found = {tree.key: tree for source in config.sources for tree in trees_of(source)}
    trees = list(found.values())  # one that is named twice counts once
    tasks = [text for place in config.fence for text in texts(place)]
    fence = Fence(tasks)
    part = _begun(out, [dump(config), encoder.digest, *found, *tasks])
    work = _Build(part=part, config=config, encoder=encoder, marks=marks)
    for tree in trees:
        decode = _decoder(load(tree.source.tokenizer)) if tree.source.tokenizer else None
        work.gather(tree, fence, decode)
    chosen, tallies = work.choose(trees)
    shards = {source.name: work.write(source, chosen) for source in config.sources}
    facts = [
        {"name": tree.name, "kind": tree.kind, "place": tree.place, "state": tree.state}
        | {"licence": work.gathered(tree).licence, "files": len(numbers)}
        for tree, numbers in chosen
    ]
    about = {"tokenizer": encoder.digest, "trees": facts, "fenced_tasks": len(fence)}
    card = written(part, config, about, shards, tallies)
    (part / "settings").unlink()  # first, since a build does not go on without the trees
    shutil.rmtree(part / "trees")
    part.rename(out)
    flush(out.parent)
    return card


def _begun(out: Path, follows_from: Sequence[str]) -> Path:
    """Return the folder of a build that was killed, or an empty one for one that follows from other texts."""
    part = out.with_name(f"{out.name}.part")
    digest = hashlib.sha256(json.dumps(follows_from).encode()).hexdigest().encode()
    settings = part / "settings"
    if settings.exists() and settings.read_bytes() == digest:
        log.info("going on in %s", part)
        return part
    shutil.rmtree(part, ignore_errors=True)
    (part / "trees").mkdir(parents=True)
    _appear(settings, digest)
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """The stages of a build in the folder `part`."""

    part: Path
    config: CorpusConfig
    encoder: Encoder
    marks: Marks

    def gather(self, tree: TextTree, fence: Fence, decode: SessionText | None) -> None:
        """Keep what a tree has, unless a build that was killed has done so."""
        if self._place(tree.key).exists():
            return
        found = self._let_through(tree, fence, decode)
        about = [found.licence, found.files, found.tally.rows, found.tally.secrets]
        _appear(self._place(tree.key), zstandard.compress(json.dumps(about).encode(), 3))

    def gathered(self, tree: TextTree) -> _Gathered:
        about = json.loads(zstandard.decompress(self._place(tree.key).read_bytes()))
        licence, files, rows, secrets = about
        tally = FileTally(rows={reason: Counter(row) for reason, row in rows.items()}, secrets=secrets)
        return _Gathered(licence=licence, files=files, tally=tally)

    def _place(self, name: str) -> Path:
        return self.part / "trees" / name

    def _let_through(self, tree: TextTree, fence: Fence, decode: SessionText | None) -> _Gathered:
        config, tally = self.config, FileTally()
        raw = sorted(files_of(tree, config, decode), key=lambda file: file.path)
        top = {
            file.path.rpartition("/")[2]: file.data
            for file in raw
            if file.data is not None and shows_licence(file.path)
        }
        licence, is_session = licence_shown(tree, top), tree.is_recorded
        if not is_session and not allowed(licence, config.licences):
            for file in raw:
                tally.add(f"{LICENCE} {licence}", file.size)
            return _Gathered(licence=licence, tally=tally)
        kept = []
        for file in raw:
            found = filtered(file, config, is_session=is_session)
            reason = found.reason or (FENCED if fence.shares(found.text) else "")
            tally.add(reason, file.size)
            if not reason:
                kept.append((file.path, found.text))
                tally.secrets += found.secrets
        return _Gathered(licence=licence, files=kept, tally=tally)

    def choose(self, trees: Sequence[TextTree]) -> tuple[_Chosen, dict[str, FileTally]]:
        """Return the files of each tree in order that are no copies, and the tally of each source.

        Held-out sources come first, so that what is trained on is no copy of them. Raises CorpusError for a
        source without any file.
        """
        copies, chosen = Copies(self.config.duplicates), dict[str, list[int]]()
        tallies = {source.name: FileTally() for source in self.config.sources}
        for tree in sorted(trees, key=lambda tree: not tree.source.held_out):
            gathered, tally = self.gathered(tree), tallies[tree.source.name]
            tally.merge(gathered.tally)
            chosen[tree.key] = []
            for number, (_, text) in enumerate(gathered.files):
                if reason := copies.reason(text):
                    tally.move(reason, len(text.encode()))
                else:
                    chosen[tree.key].append(number)
        for source in self.config.sources:
            if not any(chosen[tree.key] for tree in trees if tree.source == source):
                raise CorpusError(
                    f"source {source.name} has a weight of {source.weight:g} and no file is left of it "
                    f"({tallies[source.name].most()}): leave it out, or let more through"
                )
        return [(tree, chosen[tree.key]) for tree in trees], tallies

    def write(self, source: CorpusSource, chosen: _Chosen) -> list[dict[str, Any]]:
        """Write the shards of a source that are not there yet; return what the card says of each."""
        facts = []
        for number, documents in enumerate(self._grouped(source, chosen)):
            name = f"{source.name}-{number:05d}"
            if not self._place(name).exists():
                _appear(self._place(name), json.dumps(self._shard(name, documents)).encode())
            facts.append(json.loads(self._place(name).read_bytes()))
        return facts

    def _grouped(self, source: CorpusSource, chosen: _Chosen) -> Iterator[list[_Text]]:
        """Yield the documents of each shard."""
        documents: list[_Text] = []
        size = 0
        for tree, numbers in chosen:
            if tree.source != source or not numbers:
                continue
            files = self.gathered(tree).files
            some = [files[number] for number in numbers]
            together = source.together == "repository" and not tree.is_recorded
            documents += [(tree.name, some)] if together else [(tree.name, [file]) for file in some]
            size += sum(len(text) for _, text in some)
            if size >= SHARD_BYTES:
                yield documents
                documents, size = [], 0
        if documents:
            yield documents

    def _shard(self, name: str, documents: Sequence[_Text]) -> dict[str, Any]:
        share, seed = self.config.fill_in_the_middle, self.config.seed
        rows = [
            document(self.encoder, self.marks, tree, files, share=share, seed=seed)
            for tree, files in documents
        ]
        width = np.uint16 if self.encoder.id_count <= 2**16 else np.uint32
        tokens = np.fromiter((id for row in rows for id in row), width)
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        files = {f"{name}.npy": tokens, f"{name}.ends.npy": ends}
        digests = {file: _appear(self.part / file, _npy(array)) for file, array in files.items()}
        return {"name": name, "tokens": len(tokens), "documents": len(ends), "sha256": digests}


def _decoder(recorder: Encoder) -> SessionText:
    """Return the text of recorded tokens, in which a control token is the end of a line."""
    line, control = recorder.encode_untrusted("\n"), recorder.control_ids
    return lambda ids: recorder.decode([one for id in ids for one in (line if id in control else [id])])


def _npy(values: "np.ndarray[Any, Any]") -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def _appear(path: Path, data: bytes) -> str:
    """Write a file, whole or not at all; return its sha256."""
    draft = path.with_name(f".{path.name}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return hashlib.sha256(data).hexdigest()
