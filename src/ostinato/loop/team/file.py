"""The file of a team, an ordinary run's file, and what is written beside it: units, proxies, the admin's key.

The settings are those that so many people can decide with (`deploy.plan`). What stands in the file is read by
`ostinato run` and `ostinato cycle` too.
"""

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ostinato.config import ConfigError, dump, load
from ostinato.deploy.plan import FOUR_WEEKS, Prospect, ladder
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import PEOPLE
from ostinato.loop.run import Run, write_whole
from ostinato.loop.team import texts
from ostinato.store import Store
from ostinato.store.accounts import hash_key, new_key
from ostinato.store.config import has_record

FILE = Path("team.toml")
FRONT = "front"
"""The folder, in that of the run, with the lock, settings and logs of the supervisor."""
ADMIN = "admin.key"
BASELINE, LIFT, SESSIONS_A_DAY = 0.6, 0.1, 8.0
"""What a team is supposed to be like before anything of it is known: the share of good sessions, the gain to
find, and the sessions of one person in a day."""
LEAST_PEOPLE = 5


class TeamError(ValueError):
    """There is no team here, or it cannot be made; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A team's file, its settings and its run folder.

    >>> Team(file=Path("team.toml"), config=RunConfig(), run=Run(directory=Path("runs/team"))).address
    'http://127.0.0.1:0'
    """

    file: Path
    config: RunConfig
    run: Run

    @property
    def front(self) -> Path:
        return self.run.directory / FRONT

    @property
    def address(self) -> str:
        """The address that people use."""
        live = self.config.live
        return live.address.rstrip("/") or f"http://{live.host}:{live.port}"

    @property
    def dashboard(self) -> str:
        """The address of the dashboard, where people enter with their keys."""
        live = self.config.live
        return (
            live.address.rstrip("/")
            if live.address.startswith("https")
            else f"http://{live.host}:{live.port + 1}"
        )

    def open_store(self) -> Store:
        return Store.open(self.run.store)


def open_team(file: Path) -> Team:
    """Return the team of a file, whose settings the run folder keeps. Raises TeamError and ConfigError.

    Until a stage of the run is done its folder takes over what was changed in the file, as nothing came of it.
    """
    if not file.exists():
        raise TeamError(f"{file} is not there: `ostinato team init` writes one, --file names another")
    config = load(RunConfig, file)
    if config.live.developers != PEOPLE or not config.engine.url or not config.live.port:
        raise TeamError(
            f'{file} is no file of a team: it needs [engine] url = ["http://…"], [live] developers = "people" '
            "and [live] port, as `ostinato team init` writes them"
        )
    run = Run(directory=file.parent / "runs" / file.stem)
    if not run.config.exists() or not (run.directory / "stages").exists():
        run.directory.mkdir(parents=True, exist_ok=True)
        write_whole(run.config, dump(config))
    return Team(file=file, config=config, run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The answers of the person who makes a team.

    >>> Wishes(engine="http://gpu:8000/v1", model="Qwen/Qwen3-8B").people
    20
    """

    engine: str
    model: str
    address: str = "http://127.0.0.1:8080"
    people: int = 20
    context: int = 32_768
    """The tokens that the engine reads."""


def make_team(file: Path, wishes: Wishes) -> list[Path]:
    """Write a team's file and what belongs to it; return the paths. Raises TeamError where something is there.

    The record is made, and a key of the administrator, which stands in a file that only its owner reads.
    """
    run = Run(directory=file.parent / "runs" / file.stem)
    if file.exists():
        raise TeamError(f"{file} is there already: name another with --file, or `ostinato team up`")
    if has_record(run.directory):
        raise TeamError(
            f"{run.directory} holds a record already, of another run or team, which is left as it is: name "
            "another file with --file"
        )
    key_file = file.with_name(ADMIN)
    if key_file.exists():
        raise TeamError(f"{key_file} is there already, of another team: make this one in a folder of its own")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_settings(file, wishes))
    try:
        team = open_team(file)
        key = new_key()
        with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(key + "\n")
        store = team.open_store()
        store.add_key(hash_key(key), "admin", "admin,use,feedback")
        store.close()
    except ConfigError:
        file.unlink()
        raise
    return [file, run.store_path, key_file, *_write_beside(team)]


def _write_beside(team: Team) -> list[Path]:
    """Write the units and the proxies, for this folder and this interpreter."""
    live, folder = team.config.live, team.file.parent.resolve()
    fields = {
        "folder": folder,
        "file": team.file.resolve(),
        "command": f"{shlex.quote(sys.executable)} -m ostinato team up --file {team.file.resolve()}",
        "name": urlsplit(live.address).hostname if live.address.startswith("https") else "models.example",
        "port": live.port,
        "dashboard": live.port + 1,
        "file_name": team.file.name,
    }
    written = []
    for name, text in texts.BESIDE.items():
        path = folder / name
        path.write_text(text.format(**fields))
        written.append(team.file.with_name(name))
    return written


def _settings(file: Path, wishes: Wishes) -> str:
    there = urlsplit(wishes.address)
    behind = there.scheme == "https"
    host = "127.0.0.1" if behind or there.hostname in ("127.0.0.1", "localhost") else "0.0.0.0"
    days, decides = decided(wishes.people, SESSIONS_A_DAY)
    return texts.TEAM.format(
        file=file,
        people=wishes.people,
        model=json.dumps(wishes.model),
        engine=json.dumps(wishes.engine.rstrip("/").removesuffix("/v1")),
        context=wishes.context,
        max_context=wishes.context - wishes.context // 8,
        host=host,
        port=8080 if behind else there.port or 8080,
        address=json.dumps(wishes.address.rstrip("/") if behind or host == "0.0.0.0" else ""),
        sessions=max(40, 8 * wishes.people),
        ab_sessions=round(
            min(days or FOUR_WEEKS, FOUR_WEEKS) * SESSIONS_A_DAY * max(wishes.people, LEAST_PEOPLE)
        ),
        decides=decides,
    )


def decided(people: int, sessions_a_day: float) -> tuple[int | None, str]:
    """Return the days until so many people show a gain of ten points, and all that they can show, in words."""
    each = f"{people} people with {sessions_a_day:g} sessions a day each"
    if people < LEAST_PEOPLE or sessions_a_day <= 0:
        return None, f"{each} can show nothing of a candidate: {LEAST_PEOPLE} must meet both versions"
    prospect = Prospect(baseline=BASELINE, lift=LIFT, users=people, sessions_a_day=sessions_a_day)
    better, *others = ladder(prospect)
    if better.days is None:
        found = f"{each} never show a gain of {LIFT:.0%}"
    else:
        found = f"{each} show a gain of {LIFT:.0%} after {better.days} days"
    ways = [f"`{rung.claim}` after {rung.days} days" for rung in others if rung.works]
    rest = f"; a loss of {prospect.margin:.0%} is ruled out by {' or '.join(ways)}" if ways else ""
    return better.days, found + rest
