"""The file of a team, an ordinary run's file, and what is written beside it: units, proxies, the admin's key.

The settings are those that so many people can decide with (`deploy.plan`). What stands in the file is read by
`ostinato run` and `ostinato cycle` too.
"""

import json
import os
import shlex
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ostinato.config import dump, load
from ostinato.deploy.plan import FOUR_WEEKS, Prospect, ladder
from ostinato.harness.frontends.command_line import SUMMARIZING
from ostinato.harness.workspace.served import LEAST_TO_SUMMARIZE
from ostinato.loop.config import RunConfig
from ostinato.loop.live_config import PEOPLE
from ostinato.loop.run import Run, write_whole
from ostinato.loop.team import texts
from ostinato.store import Store
from ostinato.store.accounts import hash_key, new_key
from ostinato.store.config import has_record

ADMIN = "admin.key"
BASELINE, LIFT, SESSIONS_A_DAY, LEAST_PEOPLE = 0.6, 0.1, 8.0, 5
"""The team that is assumed before it works: the share of good sessions, the gain to find, and the sessions of
one person in a day. Fewer people than the last number are not compared."""


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
        """The folder of the supervisor's lock, settings and logs."""
        return self.run.directory / "front"

    @property
    def address(self) -> str:
        """The address that people use."""
        live = self.config.live
        return live.address.rstrip("/") or f"http://{live.host}:{live.port}"

    @property
    def dashboard(self) -> str:
        """The address of the dashboard, where people enter with their keys."""
        live = self.config.live
        return self.address if "https" in live.address else f"http://{live.host}:{live.port + 1}"

    def open_store(self) -> Store:
        return Store.open(self.run.store)


def open_team(file: Path) -> Team:
    """Return the team of a file, whose settings the run folder keeps. Raises TeamError and ConfigError.

    Until a stage of the run is done, its folder takes over what was changed in the file.
    """
    if not file.exists():
        raise TeamError(f"{file} is not there: `ostinato team init` writes one, --file names another")
    config = load(RunConfig, file)
    if config.live.developers != PEOPLE or not config.engine.url or not config.live.port:
        raise TeamError(
            f"{file} is no file of a team: it needs [engine] url, [live] port and [live] developers = "
            '"people", as `ostinato team init` writes them'
        )
    run = Run(directory=file.parent / "runs" / file.stem)
    if not run.config.exists() or not (run.directory / "stages").exists():
        run.directory.mkdir(parents=True, exist_ok=True)
        write_whole(run.config, dump(config))
    return Team(file=file, config=config, run=run)


def make_team(file: Path, *, engine: str, model: str, address: str, people: int, context: int) -> list[Path]:
    """Write a team's file and what belongs to it; return the paths. Raises TeamError where it is there.

    The record is made, and a key of the administrator in a file that only its owner reads. `context` is the
    number of tokens that the engine reads.
    """
    directory, key_file = file.parent / "runs" / file.stem, file.with_name(ADMIN)
    if there := next((path for path in (file, key_file) if path.exists()), None):
        raise TeamError(f"{there} is there already: a team has a folder of its own, --file names another")
    if has_record(directory):
        raise TeamError(
            f"{directory} holds the record of another run or team, which stays as it is: name another --file"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        _settings(file, engine=engine, model=model, address=address, people=people, context=context)
    )
    team, key = open_team(file), new_key()
    with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(key + "\n")
    with closing(team.open_store()) as store:
        store.add_key(hash_key(key), "admin", "admin,use,feedback")
    fields = {
        "folder": file.parent.resolve(),
        "command": f"{shlex.quote(sys.executable)} -m ostinato team up --file {file.resolve()}",
        "name": urlsplit(address).hostname if address.startswith("https") else "models.example",
        "port": team.config.live.port,
        "dashboard": team.config.live.port + 1,
        "file": file.name,
    }
    for name, text in texts.BESIDE.items():
        file.with_name(name).write_text(text.format(**fields))
    return [file, Path(team.run.store), key_file, *map(file.with_name, texts.BESIDE)]


def _settings(file: Path, *, engine: str, model: str, address: str, people: int, context: int) -> str:
    there = urlsplit(address)
    behind = there.scheme == "https"
    local = behind or there.hostname in ("127.0.0.1", "localhost")
    days, decides = decided(people, SESSIONS_A_DAY)
    return texts.TEAM.format(
        file=file,
        people=people,
        model=json.dumps(model),
        engine=json.dumps(engine),
        context=context,
        profile="core" if context < LEAST_TO_SUMMARIZE else SUMMARIZING,
        host="127.0.0.1" if local else "0.0.0.0",  # noqa: S104 (the person named such an address)
        port=8080 if behind else there.port or 8080,
        address=json.dumps(address if behind or not local else ""),
        sessions=max(40, 8 * people),
        ab_sessions=round(min(days or FOUR_WEEKS, FOUR_WEEKS) * SESSIONS_A_DAY * max(people, LEAST_PEOPLE)),
        decides=decides,
    )


def decided(people: int, sessions_a_day: float) -> tuple[int | None, str]:
    """Return the days until so many people show a gain of ten points, and what they can show, in words."""
    each = f"{people} people with {sessions_a_day:g} sessions a day each"
    if people < LEAST_PEOPLE or sessions_a_day <= 0:
        return None, f"{each} can show nothing of a candidate: {LEAST_PEOPLE} must meet both versions"
    prospect = Prospect(baseline=BASELINE, lift=LIFT, users=people, sessions_a_day=sessions_a_day)
    better, *others = ladder(prospect)
    found = "never" if better.days is None else f"after {better.days} days"
    ways = [f"`{rung.claim}` after {rung.days} days" for rung in others if rung.works]
    rest = f"; a loss of {prospect.margin:.0%} is ruled out by {' or '.join(ways)}" if ways else ""
    return better.days, f"{each} show a gain of {LIFT:.0%} {found}{rest}"
