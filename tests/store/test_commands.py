"""`ostinato store`: nothing is changed without --yes, and a record of an older layout is only looked at."""

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.databases import run_sql
from tests.store.builders import group, session, turn, version
from tests.store.old_record import STAY, fill

from ostinato.cli import main
from ostinato.store import Ledger, Store
from ostinato.store.config import shown
from ostinato.store.settled import Stays
from ostinato.store.sql.schema import SCHEMA


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["store", *words, "--json"]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_a_compaction_is_shown_before_it_is_done(
    store: Store, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.record([turn(0)], sessions=[session()])
    ledger = Ledger(store)
    ledger.offer(group("g"))
    ledger.claim(4, 1, 0)
    ledger.commit(version(4, "g"))
    words = ("compact", "--older-than", "30", "--store", place)
    would = asked(capsys, *words)
    assert (would["groups"], would["removed"]) == (1, False) and asked(capsys, *words) == would
    assert asked(capsys, *words, "--yes") == {**would, "removed": True}
    assert asked(capsys, *words)["groups"] == 0
    assert main(["store", "info", "--store", place]) == 0
    told = capsys.readouterr().out
    assert f"layout {SCHEMA}\n" in told and "turns older" in told and told.endswith(f"in {shown(place)}\n")


def test_an_expiry_is_shown_before_it_is_done(
    place: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    words = ("expire", "--older-than", "30", "--store", place)
    would = asked(capsys, *words)
    assert (would["sessions"], would["removed"]) == (8, False) and asked(capsys, *words) == would
    assert would["stay"] == dict(Counter(why.value for _, why in STAY.values() if why is not Stays.HEARD_OF))
    assert main(["store", *words]) == 0
    told = capsys.readouterr().out
    assert "would remove what 8 sessions consist of" in told and "nothing was changed: add --yes" in told
    assert "turns                  14 rows" in told and "5 old sessions stay: they are held by" in told
    assert asked(capsys, *words, "--yes") == {**would, "removed": True}
    assert asked(capsys, *words)["sessions"] == 0
    assert asked(capsys, *words, "--uncollected")["sessions"] == 1


def test_a_record_of_an_older_layout_is_only_looked_at(
    store: Store, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.record([turn(0)], sessions=[session()])
    run_sql(place, f"UPDATE counters SET value = {SCHEMA - 1} WHERE name = 'schema'")
    for words in (["compact", "--older-than", "0", "--yes"], ["expire", "--older-than", "0", "--yes"]):
        assert main(["store", *words, "--store", place]) == 2
        assert f"has layout {SCHEMA - 1}, this version of ostinato reads {SCHEMA}" in capsys.readouterr().err
    found = asked(capsys, "info", "--store", place)
    assert found == {"layout": SCHEMA - 1, "reads": SCHEMA, "store": shown(place)}
    assert store.turns("s1") == [turn(0)]


def test_a_record_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["info"],
        ["compact", "--older-than", "1", "--yes"],
        ["expire", "--older-than", "1"],
    ):
        assert main(["store", *words, "--directory", str(tmp_path)]) == 2
        assert "is no record: name a run folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / "store.db").touch()
    for command in ("compact", "expire"):
        assert main(["store", command, "--older-than", "nan", "--directory", str(tmp_path)]) == 2
