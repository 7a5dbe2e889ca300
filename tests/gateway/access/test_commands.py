"""The commands for keys, consent and purges, run as an operator runs them."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.builders import session

from ostinato.cli import main
from ostinato.store import Store
from ostinato.store.accounts import hash_key


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "store.db")
    Store.open(path).close()
    return path


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_key_is_shown_once_and_listed_without_itself(path: str, capsys) -> None:
    add = ["keys", "add", "ada", "--store", path, "--organisation", "acme", "--roles", "use", "--json"]
    status, said, _ = typed(capsys, *add, "--requests-per-minute", "60", "--concurrent", "2")
    made = json.loads(said)
    assert (status, made["roles"], made["requests_per_minute"]) == (0, ["use"], 60)
    kept = Store.open(path).key(hash_key(made["key"]))
    assert kept is not None and (kept.user, kept.organisation, kept.concurrent) == ("ada", "acme", 2)
    _, said, _ = typed(capsys, "keys", "list", "--store", path)
    assert made["id"] in said and made["key"] not in said and "organisation=acme" in said
    status, said, _ = typed(capsys, "keys", "revoke", made["id"], "--store", path)
    assert (status, Store.open(path).key(kept.hash)) == (0, None)
    assert typed(capsys, "keys", "list", "--store", path)[1] == f"none\nin {path}\n"


def test_consent_is_shown_as_it_holds(path: str, capsys) -> None:
    say = ["consent", "set", "yes", "--store", path, "--organisation", "acme"]
    typed(capsys, *say, "--user", "ada", "--by", "ada")
    show = ["consent", "show", "--store", path, "--user", "ada", "--json"]
    (word,) = json.loads(typed(capsys, *show)[1])["consent"]
    assert (word["granted"], word["set_by"], word["trained_on"]) == (True, "ada", False)
    typed(capsys, *say, "--by", "legal")
    (word,) = json.loads(typed(capsys, *show)[1])["consent"]
    assert word["trained_on"] and word["set_at"] > 1e9
    both = json.loads(typed(capsys, "consent", "show", "--store", path, "--json")[1])
    assert len(both["consent"]) == 2 and both["store"] == path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["keys", "add", "ada", "--roles", "king"], "roles are use, feedback, admin"),
        (["keys", "add", "ada", "--concurrent", "0"], "concurrent must be at least 1"),
        (["keys", "revoke", "12"], "0 keys begin with '12'"),
        (["consent", "set", "yes"], "consent needs an owner"),
        (["purge", "--user", "ada"], "no user 'ada'"),
    ],
)
def test_a_command_that_fails_prints_one_line(path: str, capsys, words: list[str], message: str) -> None:
    status, out, error = typed(capsys, *words, "--store", path)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert message in error


def test_the_session_to_purge_is_meant_by_the_beginning_of_its_id(path: str, capsys) -> None:
    with closing(Store.open(path)) as store:
        store.record([], sessions=[session("3f058d82"), session("3f0599")])
    status, _, error = typed(capsys, "purge", "--session", "3f05", "--store", path)
    assert status == 2 and "3f058d82, 3f0599" in error
    status, out, _ = typed(capsys, "purge", "--session", "3f058", "--store", path, "--json")
    assert status == 0 and json.loads(out)["sessions"] == ["3f058d82"]


def test_a_folder_without_a_run_is_named(tmp_path: Path, capsys) -> None:
    status, _, error = typed(capsys, "keys", "list", "--directory", str(tmp_path / "nothing"))
    assert status == 2 and "is no record: name a run folder with --directory" in error
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["keys", "list"],
        ["keys", "revoke", "12"],
        ["consent", "show"],
        ["consent", "set", "yes", "--user", "ada"],
        ["purge", "--user", "ada"],
    ],
)
def test_a_mistyped_record_is_refused_and_not_made(tmp_path: Path, capsys, words: list[str]) -> None:
    for place in (tmp_path / "stoer.db", f"sqlite:///{tmp_path}/stoer.db"):
        status, out, error = typed(capsys, *words, "--store", str(place))
        assert (status, out) == (2, "") and f"{place} is no record" in error
    assert not list(tmp_path.iterdir())


def test_the_first_key_makes_the_record_that_is_named_and_says_so(tmp_path: Path, capsys) -> None:
    path = str(tmp_path / "store.db")
    add = ["keys", "add", "ada", "--store", path]
    assert typed(capsys, *add)[1].endswith(f"\nin {path}, a new record: there was none\n")
    made = json.loads(typed(capsys, *add, "--json")[1])
    assert (made["store"], made["new_store"]) == (path, False)
    nowhere = typed(capsys, "keys", "add", "ada", "--directory", str(tmp_path / "nothing"))
    assert nowhere[0] == 2 and not (tmp_path / "nothing").exists()
