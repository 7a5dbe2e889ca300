"""The trees that a corpus is made of, and their files as bytes. Nothing of them is run or checked out.

A *tree* is a repository at a commit, a source archive, a wheel, an installed package, a record of sessions,
or the corrections in one: texts that people made of an agent's edits.
"""

import bisect
import gzip
import hashlib
import io
import itertools
import json
import lzma
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import IO

from ostinato import git
from ostinato.data.config import CorpusConfig, CorpusError, CorpusSource
from ostinato.data.licences import DECLARED, FILES, licence_of, of_metadata
from ostinato.store import Objects, Store
from ostinato.types import Session, SignalKind, Source

BATCH_BYTES = 2**25
"""The bytes of a repository's files that are read from git at once."""
MOST_FILES = 1_000_000
BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
"""The errors of a broken or encrypted archive."""
LEARNT = (Source.TEACHER, Source.PRACTICE, Source.LIVE)
SessionText = Callable[[Sequence[int]], str]
"""Returns the text of recorded tokens."""
SESSIONS = "recorded sessions, by consent"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """A file as it lies in its tree; `data` is None where it was larger than asked for, and not read.

    >>> RawFile(path="src/a.py", data=b"x = 1", size=5).size
    5
    """

    path: str
    data: bytes | None
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTree:
    """One tree of a source: its name in the card, and what its content follows from."""

    source: CorpusSource
    kind: str
    name: str
    place: str
    state: str
    """The commit, the digest of the archive, the version of the package, or what is read of the record."""

    @property
    def is_recorded(self) -> bool:
        """True for what people allowed by their consent: no licence is asked for, and no file has a type."""
        return self.kind in {"record", "corrections"}

    @property
    def key(self) -> str:
        """The name of what is kept of it while a corpus is built."""
        text = "\0".join((self.source.name, self.kind, self.place, self.state))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def trees_of(source: CorpusSource) -> Iterator[TextTree]:
    """Yield the trees of a source in the order of its file. Raises CorpusError for one that is not there."""

    def tree(kind: str, name: str, place: str, state: str) -> TextTree:
        return TextTree(source=source, kind=kind, name=name, place=place, state=state)

    for path in source.repositories:
        with _readable(str(path)):
            commit = git.run(path, "rev-parse", "--verify", f"{source.revision}^{{commit}}")
            commit.check_returncode()
        yield tree("repository", path.resolve().name, str(path), commit.stdout.decode().strip())
    for place in source.archives:
        with _readable(place):
            state = hashlib.sha256(_fetched(place)).hexdigest()
        yield tree("archive", PurePosixPath(place).name, place, state)
    for name in source.packages:
        try:
            yield tree("package", name, name, distribution(name).version)
        except PackageNotFoundError as error:
            raise CorpusError(
                f"source {source.name}: the package {name} is not installed here: install it, or fetch its "
                f"source by `pip download --no-deps --only-binary :all: {name}` and name the file in archives"
            ) from error
    for url in source.records:
        with closing(_opened(url)) as store:
            sessions = ",".join(session.id for session in _consented(store))
        yield tree("record", PurePosixPath(url).name, url, hashlib.sha256(sessions.encode()).hexdigest())
    for url in source.corrections:
        digest = hashlib.sha256(json.dumps(_corrections(url)).encode()).hexdigest()
        yield tree("corrections", PurePosixPath(url).name, url, digest)


def files_of(tree: TextTree, config: CorpusConfig, decode: SessionText | None = None) -> Iterator[RawFile]:
    """Yield the files of a tree in no order that counts; `decode` reads the tokens of a record.

    Only files with one of the suffixes are read, and what a licence is declared in. Raises CorpusError for a
    tree that is broken or has gone.
    """
    kinds = {"repository": _of_repository, "archive": _of_archive, "package": _of_package}
    with _readable(tree.place):
        if tree.kind == "record":
            assert decode is not None
            yield from _of_record(tree, decode)
        elif tree.kind == "corrections":
            for path, text in _corrections(tree.place).items():
                data = text.encode()
                yield RawFile(path=path, data=data, size=len(data))
        else:
            yield from kinds[tree.kind](tree, config)


def licence_shown(tree: TextTree, top: Mapping[str, bytes]) -> str:
    """Return the SPDX expression of a tree, from its settings or the files at its top, or UNKNOWN."""
    if tree.source.licence or tree.is_recorded:
        return tree.source.licence or SESSIONS
    if tree.kind == "package":
        found = of_metadata(distribution(tree.place).read_text("METADATA") or "")
        if found:
            return found
    return licence_of(top.keys(), lambda name: top[name].decode(errors="replace"))


def shows_licence(path: str) -> bool:
    """Return whether a file may show the licence of its tree, at its top or in a wheel's metadata."""
    folder, _, name = path.rpartition("/")
    at_top = not folder or folder.endswith((".dist-info", ".dist-info/licenses"))
    return at_top and (name in DECLARED or FILES.fullmatch(name) is not None)


def _is_read(path: str, config: CorpusConfig) -> bool:
    return path.endswith(config.suffixes) or shows_licence(path)


def _of_repository(tree: TextTree, config: CorpusConfig) -> Iterator[RawFile]:
    listed = git.run(tree.place, "ls-tree", "-r", "-l", "-z", "--full-tree", tree.state)
    listed.check_returncode()
    wanted: list[tuple[str, bytes, int]] = []
    for row in listed.stdout.split(b"\0")[:-1]:
        about, _, name = row.partition(b"\t")
        mode, kind, blob, size = about.split()
        if kind != b"blob" or mode == b"120000":
            continue
        path = name.decode(errors="replace")
        if int(size) <= config.largest_bytes and _is_read(path, config):
            wanted.append((path, blob, int(size)))
        else:
            yield RawFile(path=path, data=None, size=int(size))
    while wanted:
        total = list(itertools.accumulate(size for *_, size in wanted))
        count = max(1, bisect.bisect_right(total, BATCH_BYTES))
        yield from _blobs(tree, wanted[:count])
        wanted = wanted[count:]


def _blobs(tree: TextTree, wanted: Sequence[tuple[str, bytes, int]]) -> Iterator[RawFile]:
    given = b"".join(blob + b"\n" for _, blob, _ in wanted)
    done = git.run(tree.place, "cat-file", "--batch", given=given)
    done.check_returncode()
    at = 0
    for path, _, size in wanted:
        at = done.stdout.index(b"\n", at) + 1
        yield RawFile(path=path, data=done.stdout[at : at + size], size=size)
        at += size + 1


def _of_archive(tree: TextTree, config: CorpusConfig) -> Iterator[RawFile]:
    data = _fetched(tree.place)
    if hashlib.sha256(data).hexdigest() != tree.state:
        raise CorpusError(f"{tree.place} has changed since the build began: begin it again")
    if tree.place.endswith((".zip", ".whl")):
        with zipfile.ZipFile(io.BytesIO(data)) as zipped:
            found = [
                _member(info.filename, info.file_size, partial(zipped.open, info), config)
                for info in zipped.infolist()
                if not info.is_dir()
            ]
    else:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tarred:
            found = [
                _member(info.name, info.size, partial(tarred.extractfile, info), config)
                for info in itertools.islice(tarred, MOST_FILES)
                if info.isfile()
            ]
    tops = {each.path.partition("/")[0] for each in found}
    cut = len(tops) == 1 and not tree.place.endswith(".whl")  # sdists lie in one folder, NAME-VERSION
    for each in found:
        path = each.path.partition("/")[2] if cut else each.path
        yield RawFile(path=path or each.path, data=each.data, size=each.size)


def _member(path: str, size: int, opened: Callable[[], IO[bytes] | None], config: CorpusConfig) -> RawFile:
    """Return a file of an archive; a size that it does not keep to, as in a bomb, is never unpacked."""
    path = PurePosixPath(path).as_posix()
    if size > config.largest_bytes or not (path.endswith(config.suffixes) or shows_licence(_below(path))):
        return RawFile(path=path, data=None, size=size)
    file = opened()
    assert file is not None
    with file:
        return RawFile(path=path, data=file.read(config.largest_bytes), size=size)


def _below(path: str) -> str:
    folder, _, rest = path.partition("/")
    return path if folder.endswith(".dist-info") else rest or path


def _of_package(tree: TextTree, config: CorpusConfig) -> Iterator[RawFile]:
    for file in distribution(tree.place).files or ():
        path = Path(str(file.locate()))
        if ".." in file.parts or path.suffix == ".pyc" or not path.is_file() or path.is_symlink():
            continue
        size = path.stat().st_size
        read = size <= config.largest_bytes and _is_read(str(file), config)
        yield RawFile(path=str(file), data=path.read_bytes() if read else None, size=size)


def _of_record(tree: TextTree, decode: SessionText) -> Iterator[RawFile]:
    """Yield the text of each segment of the sessions: its last prompt, and what was sampled after it."""
    with closing(_opened(tree.place)) as store:
        for session in _consented(store):
            turns = store.turns_of([session.id]).get(session.id, ())
            for segment, turn in {turn.segment: turn for turn in turns}.items():
                data = decode((*turn.prompt_ids, *turn.completion.ids)).encode()
                yield RawFile(path=f"{session.id}/{segment}", data=data, size=len(data))


def _corrections(url: str) -> dict[str, str]:
    """Return the last text that a person made of each edit, by session and signal, of consented sessions."""
    found = dict[str, str]()
    with closing(_opened(url)) as store:
        ids = [session.id for session in _consented(store)]
        for session, signals in store.signals_of(ids).items():
            given = (each for each in signals if each.kind is SignalKind.DEMONSTRATION)
            last = {(each.turn, each.edit): each for each in given}
            found |= {f"{session}/{each.id}": _plain(str(each.value)) for each in last.values()}
    return {path: text for path, text in found.items() if text.strip()}


def _plain(value: str) -> str:
    """Return the text of a correction, which some clients send as a JSON list of blocks."""
    try:
        blocks = json.loads(value)
        return "\n".join(block["text"] for block in blocks if block["type"] == "text")
    except (ValueError, TypeError, KeyError):
        return value


def _consented(store: Store) -> list[Session]:
    """Return the ended sessions to learn from, whose users agree now and agreed when they began."""
    ended = (each for source in LEARNT for each in store.sessions(source=source, ended=True))
    return store.accounts.may_train_on(ended)


def _opened(url: str) -> Store:
    if "://" not in url and not Path(url).is_file():
        raise CorpusError(f"{url}: there is no record of sessions")
    return Store.open(url)


def _fetched(place: str) -> bytes:
    if "://" not in place:
        return Path(place).read_bytes()
    folder, _, name = place.rpartition("/")
    return Objects.open(folder).get(name)


@contextmanager
def _readable(place: str) -> Iterator[None]:
    """Turn what git and archives raise into a CorpusError with the place."""
    try:
        yield
    except (subprocess.SubprocessError, FileNotFoundError) as error:
        is_file = isinstance(error, FileNotFoundError) and error.filename != "git"
        what = "there is no such file" if is_file else git.reason(error)
        raise CorpusError(f"{place} cannot be read: {what}") from error
    except BROKEN as error:
        raise CorpusError(f"{place} is no whole archive: {error}: fetch it again") from error
