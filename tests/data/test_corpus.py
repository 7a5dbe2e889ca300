"""Rows of a corpus: each token once in an epoch, shares by weight, any row at once, nothing cut."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.data.build import _appear, _npy
from ostinato.data.config import CorpusError
from ostinato.data.corpus import Corpus, SourceTokens


def write(folder: Path, sources: dict[str, list[int]], **more: Any) -> Path:
    """Write a corpus whose tokens are all different, with documents of these lengths."""
    folder.mkdir(exist_ok=True)
    about, first = [], 0
    for name, lengths in sources.items():
        tokens, ends = np.arange(first, first + sum(lengths)), np.cumsum(lengths)
        first += sum(lengths)
        files = {f"{name}-00000.npy": tokens, f"{name}-00000.ends.npy": ends}
        digests = {file: _appear(folder / file, _npy(array)) for file, array in files.items()}
        shard = {"name": f"{name}-00000", "sha256": digests}
        about.append(
            {"name": name, "weight": 1.0, "held_out": False, "shards": [shard], **more.get(name, {})}
        )
    (folder / "card.json").write_text(json.dumps({"digest": "d", "tokenizer": "t", "sources": about}))
    return folder


LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=12).filter(lambda some: sum(some) >= 16)


@given(lengths=LENGTHS, length=st.integers(2, 16), seed=st.integers(0, 3))
def test_an_epoch_has_each_token_once_in_full_rows(
    lengths: list[int], length: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write(tmp_path_factory.mktemp("corpus"), {"one": lengths})
    source = SourceTokens(folder, json.loads((folder / "card.json").read_text())["sources"][0])
    rows = [source.row(each) for each in source.epoch(length, str(seed))]
    seen = Counter(int(id) for row in rows for id in row.ids)
    assert set(seen.values()) == {1} and len(seen) > sum(lengths) - length
    ends = np.cumsum(lengths)
    for row in rows:
        assert len(row.ids) == length and row.starts[0] == 0
        for start, end in zip(row.starts, (*row.starts[1:], length), strict=True):
            part = row.ids[start:end]
            assert list(part) == list(range(part[0], part[-1] + 1))  # of one document, in order
            assert np.searchsorted(ends, part[0], "right") == np.searchsorted(ends, part[-1], "right")


def test_a_long_document_is_seen_with_all_of_its_context(tmp_path: Path) -> None:
    corpus = Corpus.open(write(tmp_path, {"one": [64, 5, 3]}))
    rows = corpus.rows(16, seed=0)
    alone = [row for row in (next(rows) for _ in range(4)) if row.starts == (0,)]
    assert sorted(int(row.ids[0]) for row in alone) == [0, 16, 32, 48]


def test_sources_are_drawn_by_weight_and_any_row_is_there_at_once(tmp_path: Path) -> None:
    weights = {"one": {"weight": 3.0}, "held": {"held_out": True}}
    folder = write(tmp_path, {"one": [100], "other": [300], "held": [40]}, **weights)
    corpus = Corpus.open(folder)
    assert [source.name for source in corpus.held_out] == ["held"]
    stream = corpus.rows(10, seed=1)
    rows = [next(stream).ids.tolist() for _ in range(80)]
    assert [sum(row[0] < 100 for row in rows[:n]) for n in (4, 40, 80)] == [3, 30, 60]
    assert max(max(row) for row in rows) < 400
    for skip in (0, 1, 37, 79):
        assert next(corpus.rows(10, seed=1, skip=skip)).ids.tolist() == rows[skip]
    assert next(corpus.rows(10, seed=2)).ids.tolist() != rows[0]


def test_a_cut_shard_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, {"one": [64]})
    path = folder / "one-00000.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CorpusError, match=r"one-00000.npy is cut or was changed .* build the corpus again"):
        Corpus.open(folder)
    path.unlink()
    with pytest.raises(CorpusError, match="cannot be read"):
        Corpus.open(folder)


def test_what_is_no_corpus_or_too_small_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="ostinato data build"):
        Corpus.open(tmp_path)
    corpus = Corpus.open(write(tmp_path, {"one": [20]}))
    with pytest.raises(CorpusError, match="source one has 20 tokens, not one row of 32"):
        next(corpus.rows(32, seed=0))
