"""A cache file can be damaged in any way: damaged entries count as missing and are never used."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.search.cache import Cache, Encoded

LARGE = 2**30


def encoded(*rows: bytes) -> Encoded:
    return Encoded(spans=np.array([(i, i + 1) for i in range(len(rows))], np.int32).reshape(-1, 2), rows=rows)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_packing_is_exact(rows):
    value = encoded(*rows)
    back = Encoded.unpack(value.pack())
    assert back.rows == value.rows and (back.spans == value.spans).all()


def test_added_files_survive_a_restart(tmp_path: Path):
    cache = Cache(tmp_path / "c.db", LARGE)
    cache.add_files({"a": encoded(b"1", b"22")})
    cache.add_tree("t", {"x.py": "a"})
    cache.close()
    cache = Cache(tmp_path / "c.db", LARGE)
    assert cache.files(["a", "b"])["a"].rows == (b"1", b"22")
    assert cache.known(["a", "b"]) == {"a"} and cache.tree("t") == {"x.py": "a"} and cache.tree("u") is None
    cache.close()


@pytest.mark.parametrize("damage", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_put_aside(tmp_path: Path, damage: bytes):
    path = tmp_path / "c.db"
    path.write_bytes(damage)
    cache = Cache(path, LARGE)
    assert cache.known(["a"]) == set()
    cache.add_files({"a": encoded(b"1")})
    cache.close()
    assert (tmp_path / "c.damaged").read_bytes() == damage


def test_pages_overwritten_in_the_middle_are_noticed(tmp_path: Path):
    cache = Cache(tmp_path / "c.db", LARGE)
    cache.add_files({str(i): encoded(bytes(500)) for i in range(200)})
    cache.close()
    data = bytearray((tmp_path / "c.db").read_bytes())
    data[8192:40960] = b"\xa5" * 32768
    (tmp_path / "c.db").write_bytes(data)
    cache = Cache(tmp_path / "c.db", LARGE)
    assert cache.known(map(str, range(200))) == set()
    cache.close()


def test_a_damaged_row_counts_as_missing(tmp_path: Path):
    cache = Cache(tmp_path / "c.db", LARGE)
    cache.add_files({"a": encoded(b"1"), "b": encoded(b"2")})
    cache.add_tree("t", {"x": "a"})
    with sqlite3.connect(tmp_path / "c.db") as database:
        database.execute("UPDATE files SET body = x'00' WHERE key = 'a'")
        database.execute("UPDATE trees SET body = x'00'")
    database.close()
    assert set(cache.files(["a", "b"])) == {"b"} and cache.tree("t") is None
    cache.close()


def test_the_least_recently_used_goes_first(tmp_path: Path):
    cache = Cache(tmp_path / "c.db", 10_000)
    for number in range(20):
        cache.add_files({str(number): encoded(bytes(1000))})
        assert cache.files(["0"]), "in use, so kept"
    assert 5 < len(cache.known(map(str, range(20)))) < 11 and cache.known(["0", "19"]) == {"0", "19"}
    cache.close()
