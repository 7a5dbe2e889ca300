"""Trees of every kind, whole and broken."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.data.toolbox import MIT, archive, program, repository

from ostinato.data.config import CorpusConfig, CorpusError, CorpusSource
from ostinato.data.licences import UNKNOWN
from ostinato.data.sources import SESSIONS, RawFile, files_of, licence_shown, shows_licence, trees_of
from ostinato.store import Store
from ostinato.types import (
    Completion,
    Ending,
    FinishReason,
    Session,
    Signal,
    SignalKind,
    Source,
    Turn,
)

WHEEL = {
    "calc/add.py": program(1),
    "calc-1.dist-info/METADATA": "Metadata-Version: 2.4\nName: calc\nLicense-Expression: MIT\n",
    "calc-1.dist-info/RECORD": "",
}
SDIST = {"calc-1/src/add.py": program(1), "calc-1/LICENSE": MIT, "calc-1/big.py": "x" * 2000}


def read(config: CorpusConfig, **source: Any) -> tuple[dict[str, RawFile], str]:
    """Return the files of the only tree of a source, and the licence that it shows."""
    (tree,) = trees_of(CorpusSource(name="one", **source))
    files = list(files_of(tree, config))
    top = {f.path.rpartition("/")[2]: f.data for f in files if f.data is not None and shows_licence(f.path)}
    return {file.path: file for file in files}, licence_shown(tree, top)


@pytest.fixture
def config() -> CorpusConfig:
    source = CorpusSource(name="one", packages=("rich",))
    return CorpusConfig(sources=(source,), tokenizer=Path(), largest_bytes=1500)


@pytest.mark.parametrize("name", ["calc-1.tar.gz", "calc-1.zip"])
def test_an_sdist_lies_in_a_folder_of_its_own(name: str, config: CorpusConfig, tmp_path: Path) -> None:
    files, licence = read(config, archives=(str(archive(tmp_path / name, SDIST)),))
    assert licence == "MIT" and set(files) == {"src/add.py", "LICENSE", "big.py"}
    assert files["big.py"].data is None and files["big.py"].size == 2000
    assert files["src/add.py"].data == program(1).encode()


def test_a_wheel_declares_its_licence(config: CorpusConfig, tmp_path: Path) -> None:
    files, licence = read(config, archives=(str(archive(tmp_path / "calc-1-py3-none-any.whl", WHEEL)),))
    assert licence == "MIT" and files["calc/add.py"].data == program(1).encode()


def test_an_archive_streams_from_an_object_store(config: CorpusConfig, tmp_path: Path) -> None:
    path = archive(tmp_path / "calc-1.tar.gz", SDIST)
    there, _ = read(config, archives=(f"file://{path}",))
    assert there == read(config, archives=(str(path),))[0]


def test_a_repository_is_read_at_a_commit_and_without_links(config: CorpusConfig, tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", {"a.py": program(1), "b.png": b"\0" * 10, "LICENSE": MIT})
    (repo / "a.py").write_text("changed, and not committed")
    (repo / "link.py").symlink_to("/etc/passwd")
    files, licence = read(config, repositories=(repo,))
    assert licence == "MIT" and set(files) == {"a.py", "b.png", "LICENSE"}
    assert files["a.py"].data == program(1).encode() and files["b.png"].data is None


def test_a_package_is_read_where_it_is_installed(config: CorpusConfig) -> None:
    files, licence = read(config, packages=("rich",))
    assert licence == "MIT" and files["rich/__main__.py"].size > 1500


def test_a_source_says_its_own_licence(config: CorpusConfig, tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", {"a.py": program(1)})
    assert read(config, repositories=(repo,))[1] == UNKNOWN
    assert read(config, repositories=(repo,), licence="LicenseRef-ours")[1] == "LicenseRef-ours"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"repositories": (Path("nowhere"),)}, "nowhere cannot be read"),
        ({"repositories": (Path("/"),)}, "/ cannot be read"),
        ({"archives": ("nowhere.tar.gz",)}, "nowhere.tar.gz cannot be read: there is no such file"),
        ({"archives": (__file__,)}, "is no whole archive"),
        ({"packages": ("no-such-package",)}, "not installed here"),
        ({"records": ("nowhere.db",), "tokenizer": Path("start")}, "no record of sessions"),
    ],
)
def test_a_tree_that_cannot_be_read_is_named(
    source: dict[str, Any], message: str, config: CorpusConfig
) -> None:
    with pytest.raises(CorpusError, match=message):
        read(config, **source)


def test_an_archive_that_is_cut_or_changed_is_named(config: CorpusConfig, tmp_path: Path) -> None:
    path = archive(tmp_path / "calc-1.tar.gz", SDIST)
    (tree,) = trees_of(CorpusSource(name="one", archives=(str(path),)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match="has changed since"):
        list(files_of(tree, config))
    with pytest.raises(CorpusError, match="no whole archive"):
        read(config, archives=(str(path),))


@pytest.fixture
def record(tmp_path: Path) -> str:
    """A record of three sessions: ann agreed, bob never did, eve took it back; each corrected an edit."""
    store = Store.open(tmp_path / "store.db")
    store.accounts.set_consent(user="ann", granted=True, by="ann")
    store.accounts.set_consent(user="eve", granted=True, by="eve")
    blocks = json.dumps([{"type": "text", "text": "the last"}, {"type": "tool_call", "name": "edit"}])
    for user, consent in (("ann", True), ("bob", False), ("eve", True)):
        session = Session(
            id=user, source=Source.LIVE, user=user, arm="a", task_id=None, harness="", started_at=1.0,
            ending=Ending.FINISHED, consent=consent,
        )  # fmt: skip
        turn = Turn(
            session_id=user, index=0, segment=0, arm="a", prompt_ids=(1, 2), started_at=1.0, latency_s=0.1,
            completion=Completion(ids=(3,), logprobs=(0.0,), versions=(0,), finish=FinishReason.STOP),
        )  # fmt: skip
        texts = (("one", "the first"), ("one", blocks), ("two", "[1, 2]"))
        signals = [
            Signal(
                id=f"{user}{number}", session_id=user, kind=SignalKind.DEMONSTRATION, value=text, edit=edit,
                observed_at=float(number),
            )
            for number, (edit, text) in enumerate(texts)
        ]  # fmt: skip
        store.record([turn], sessions=[session], signals=signals)
    store.accounts.set_consent(user="eve", granted=False, by="eve")
    return str(tmp_path / "store.db")


def test_sessions_are_read_by_consent_alone(config: CorpusConfig, record: str) -> None:
    source = CorpusSource(name="ours", records=(record,), tokenizer=Path("start"))
    (tree,) = trees_of(source)
    (file,) = files_of(tree, config, lambda ids: f"text of {tuple(ids)}")
    assert file.path == "ann/0" and file.data == b"text of (1, 2, 3)"


def test_of_a_correction_the_last_text_is_read_by_consent_alone(config: CorpusConfig, record: str) -> None:
    (tree,) = trees_of(CorpusSource(name="ours", corrections=(record,)))
    files = {file.path: file.data for file in files_of(tree, config)}
    assert files == {"ann/ann1": b"the last", "ann/ann2": b"[1, 2]"}
    assert licence_shown(tree, {}) == SESSIONS
