"""Trees: the same files give the same answers anywhere, and a new tree costs only what changed in it."""

from pathlib import Path

import pytest

from ostinato.search.cache import Cache
from ostinato.search.embed import HashedEmbedding
from ostinato.search.index import (
    MAX_FILE_BYTES,
    Index,
    MissingFiles,
    SearchError,
    UnknownTree,
    content_hash,
    tree_hash,
)

DIGEST = content_hash(b"")


@pytest.fixture
def index(tmp_path: Path):
    index = Index(Cache(tmp_path / "c.db", 2**30), HashedEmbedding())
    yield index
    index.close()


def feed(index: Index, files: dict[str, bytes]) -> tuple[str, list[str]]:
    tree, missing = index.register({path: content_hash(data) for path, data in files.items()})
    index.add((path, files[path]) for path in missing)
    return tree, missing


def test_content_hashes_are_gits():
    assert DIGEST == "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"


def test_a_description_finds_its_function(index, files):
    tree, missing = feed(index, files)
    assert missing == ["NOTES.md", "shop/calc.py"]
    best = index.query(tree, "how are header lines parsed?")[0]
    assert (best.path, best.first, best.last) == ("shop/calc.py", 11, 13)
    assert index.query(tree, "when is the till closed?")[0].path == "NOTES.md"


def test_only_what_changed_is_embedded(index, files):
    feed(index, files)
    assert index.embedded == 2
    files["NOTES.md"] += b"\nAnd on holidays.\n"
    tree, missing = feed(index, files)
    assert missing == ["NOTES.md"] and index.embedded == 3
    files["moved/calc.py"] = files.pop("shop/calc.py")
    assert feed(index, files)[1] == [] and index.embedded == 3
    assert index.query(tree, "holidays")[0].path == "NOTES.md"


def test_one_content_is_cut_as_python_and_as_text(index):
    assert feed(index, {"a.py": b"def f(): pass", "a.txt": b"def f(): pass"})[1] == ["a.py", "a.txt"]


def test_order_does_not_matter(index, files):
    turned = dict(reversed(files.items()))
    assert feed(index, files)[0] == feed(index, turned)[0]
    assert tree_hash({}) != tree_hash({"a": DIGEST})


def test_a_path_restricts_the_hits(index, files):
    tree, _ = feed(index, files)
    assert {hit.path for hit in index.query(tree, "till", path="shop/")} == {"shop/calc.py"}
    assert {hit.path for hit in index.query(tree, "till", path="./NOTES.md")} == {"NOTES.md"}
    assert index.query(tree, "till", path="sho") == []
    assert len(index.query(tree, "till coins header", k=2)) == 2


def test_a_query_without_hits_is_empty(index, files):
    tree, _ = feed(index, files)
    assert index.query(tree, "zygote") == []


def test_an_unknown_tree_is_refused(index):
    with pytest.raises(UnknownTree, match="register"):
        index.query("0" * 64, "x")


def test_missing_contents_are_named(index, files):
    tree, _ = index.register({path: content_hash(data) for path, data in files.items()})
    with pytest.raises(MissingFiles) as error:
        index.query(tree, "x")
    assert error.value.paths == ("NOTES.md", "shop/calc.py")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../../up", "nul\0", "x" * 5000])
def test_paths_outside_the_repository_are_refused(index, path):
    with pytest.raises(SearchError, match="is not a path"):
        index.register({path: DIGEST})


@pytest.mark.parametrize("digest", ["", "zz" * 32, DIGEST.upper(), DIGEST[:-1]])
def test_hashes_of_another_kind_are_refused(index, digest):
    with pytest.raises(SearchError, match="64 hexadecimal"):
        index.register({"a": digest})


def test_limits(index):
    with pytest.raises(SearchError, match="larger"):
        index.add([("a", bytes(MAX_FILE_BYTES + 1))])
    tree, _ = feed(index, {})
    with pytest.raises(SearchError, match="k must be"):
        index.query(tree, "x", k=0)


def test_file_names_may_have_any_bytes(index):
    files = {"caf\udce9.py": b"def brew(): pass", "a b\n'\"$(x)`.py": b"def pour(): pass"}
    tree, _ = feed(index, files)
    assert {hit.path for hit in index.query(tree, "brew pour")} == set(files)
