"""The table [store], and the record of a run folder.

Covers store/config.py.
"""

from pathlib import Path

import pytest

from ostinato.store import StoreError
from ostinato.store.config import StoreConfig, has_record, objects_of, record_of, refuse_password


@pytest.mark.parametrize(
    ("url", "alone"),
    [
        ("", True),
        ("postgresql://ada@db.example/ostinato", False),
        ("postgresql+psycopg://db.example:5433/ostinato", False),
        ("postgresql:///ostinato", True),
        ("postgresql://ada@localhost/ostinato", True),
        ("postgresql://ada@[::1]/ostinato", True),
        ("postgresql:///ostinato?host=/run/postgresql", True),
        ("postgresql:///ostinato?host=db.example", False),
        ("postgresql:///ostinato?host=localhost&host=db.example", False),
    ],
)
def test_whether_other_machines_reach_the_record_is_read_from_its_address(url: str, alone: bool) -> None:
    assert StoreConfig(url=url).on_one_machine is alone


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://ada:guessed@db/name", r"postgresql://ada:\*\*\*@db/name holds a password"),
        ("postgresql://ada@db/name?password=guessed", "put it into PGPASSWORD or into ~/.pgpass"),
        ("postgresql://ada@db/name?sslpassword=guessed", "holds a password"),
        ("runs/record.db", "url names a sqlite database: write postgresql://USER@HOST/NAME"),
        ("mysql://ada@db/name", "url names a mysql database"),
        ("postgresql://ada:guessed@db:no-port/name", "neither a file path nor a database URL"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        StoreConfig(url=url)
    assert "guessed" not in str(refused.value)


@pytest.mark.parametrize("objects", ["memory://", "file:///weights", "weights"])
def test_objects_that_other_machines_cannot_reach_are_refused(objects: str) -> None:
    with pytest.raises(ValueError, match="write s3://BUCKET/PREFIX"):
        StoreConfig(objects=objects)


def test_the_objects_of_a_folder_are_those_that_its_settings_name_or_lie_in_it(tmp_path: Path) -> None:
    assert objects_of(tmp_path) == str(tmp_path / "objects")
    (tmp_path / "config.toml").write_text('[store]\nobjects = "s3://weights/run"\n')
    assert objects_of(tmp_path) == "s3://weights/run"


def test_a_file_has_no_password(tmp_path: Path) -> None:
    refuse_password("")
    refuse_password(str(tmp_path / "record.db"))


def test_the_record_of_a_folder_is_what_its_settings_name_or_the_file_in_it(tmp_path: Path) -> None:
    assert record_of(tmp_path) == str(tmp_path / "store.db") and not has_record(tmp_path)
    (tmp_path / "config.toml").write_text("seed = 1\n")
    (tmp_path / "store.db").touch()
    assert record_of(tmp_path) == str(tmp_path / "store.db") and has_record(tmp_path)
    (tmp_path / "config.toml").write_text('[store]\nurl = "postgresql://db/name"\n')
    (tmp_path / "store.db").unlink()
    assert record_of(tmp_path) == "postgresql://db/name" and has_record(tmp_path)


def test_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[store\n")
    with pytest.raises(StoreError, match=r"config\.toml cannot be read"):
        record_of(tmp_path)
