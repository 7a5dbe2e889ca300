"""Covers loop/team/file.py and loop/team/texts.py: all that `ostinato team init` writes can be used."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ostinato.config import load
from ostinato.loop.config import RunConfig, check
from ostinato.loop.live_config import allowed_hosts
from ostinato.loop.team.file import Team, TeamError, decided, make_team, open_team
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.types import Role


def test_the_file_is_that_of_a_run_and_the_folder_keeps_it(team: Team) -> None:
    config = load(RunConfig, team.file)
    check(config)
    assert config.live.developers == "people" and config.live.assign == "block"
    assert load(RunConfig, team.run.config) == team.config
    assert (team.address, team.dashboard) == ("https://models.example", "https://models.example")
    assert (config.live.host, config.live.port) == ("127.0.0.1", 8080)
    assert allowed_hosts(config.live) == ("models.example",)


def test_the_admin_s_key_works_and_is_its_owner_s_alone(team: Team, record: Store) -> None:
    path = team.file.with_name("admin.key")
    key = record.key(hash_key(path.read_text().strip()))
    assert key is not None and key.may(Role.ADMIN) and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("address", "host", "port", "shown"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1", 8080, "http://127.0.0.1:8080"),
        ("http://10.0.0.7:9000", "0.0.0.0", 9000, "http://10.0.0.7:9000"),
        ("https://models.example", "127.0.0.1", 8080, "https://models.example"),
    ],
)
def test_the_gateway_listens_where_its_address_needs_it(
    tmp_path: Path, address: str, host: str, port: int, shown: str
) -> None:
    make_team(tmp_path / "team.toml", engine="http://e", model="m", address=address, people=5, context=32768)
    team = open_team(tmp_path / "team.toml")
    assert (team.config.live.host, team.config.live.port, team.address) == (host, port, shown)


def test_nothing_of_another_team_is_overwritten(team: Team, tmp_path: Path) -> None:
    terms = {
        "engine": "http://e",
        "model": "m",
        "address": "http://127.0.0.1:1",
        "people": 5,
        "context": 4096,
    }
    before = {path: path.read_bytes() for path in team.file.parent.glob("*") if path.is_file()}
    with pytest.raises(TeamError, match=r"team\.toml is there already"):
        make_team(team.file, **terms)
    with pytest.raises(TeamError, match=r"admin\.key is there already"):
        make_team(team.file.with_name("other.toml"), **terms)
    assert before == {path: path.read_bytes() for path in team.file.parent.glob("*") if path.is_file()}
    (tmp_path / "runs" / "team").mkdir(parents=True)
    Store.open(tmp_path / "runs" / "team" / "store.db").close()
    with pytest.raises(TeamError, match="holds the record of another run or team"):
        make_team(tmp_path / "team.toml", **terms)


def test_a_change_of_the_file_holds_until_a_stage_is_done(team: Team) -> None:
    team.file.write_text(team.file.read_text().replace("seed = 1", "seed = 2"))
    assert load(RunConfig, open_team(team.file).run.config).seed == 2
    (team.run.directory / "stages").mkdir()
    team.file.write_text(team.file.read_text().replace("seed = 2", "seed = 3"))
    assert load(RunConfig, open_team(team.file).run.config).seed == 2


def test_another_file_is_no_team_s(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("seed = 1\n")
    with pytest.raises(TeamError, match="no file of a team"):
        open_team(tmp_path / "run.toml")
    with pytest.raises(TeamError, match="team init"):
        open_team(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("people", "days", "said"),
    [
        (3, None, "can show nothing"),
        (5, None, "10% never"),
        (20, 12, "after 12 days"),
        (50, 4, "`cheaper` after"),
    ],
)
def test_what_so_many_people_can_decide(people: int, days: int | None, said: str) -> None:
    found, words = decided(people, 8.0)
    assert found == days and said in words


def test_the_unit_is_one_that_systemd_reads(team: Team) -> None:
    unit = team.file.with_name("ostinato-team.service")
    command = re.search(r"^ExecStart=(\S+) -m ostinato team up --file (\S+)$", unit.read_text(), re.MULTILINE)
    assert command is not None and Path(command[1]).exists() and Path(command[2]) == team.file.resolve()
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
