"""The settings of an outside harness."""

from dataclasses import dataclass
from pathlib import Path

from ostinato.harness.outside.starts import COMMAND, STARTS, OutsideStart, command_start


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideConfig:
    """An installed harness that practice runs in place of our own.

    >>> OutsideConfig(harness="mini-swe-agent", directory=Path("/opt/mini")).name
    'outside/mini-swe-agent'
    """

    harness: str = ""
    """`mini-swe-agent`, `claude-code`, `codex`, `opencode`, or `command`; empty for our own."""
    directory: Path = Path()
    """The folder that it is installed in: a virtual environment, or a folder with `node_modules`. The sandbox
    sees it, read-only, at `{place}`."""
    command: tuple[str, ...] = ()
    """The words of `command`, in which `{place}`, `{url}` and `{task}` are replaced. Its environment names
    the model in OPENAI_BASE_URL, ANTHROPIC_BASE_URL and the like."""
    max_turns: int = 40
    """Model calls of one session; further ones are refused, so the harness ends."""
    wall_s: float = 600.0
    """The seconds that one session may take."""
    disk_mb: int = 256

    @property
    def name(self) -> str:
        """The harness as sessions and versions record it."""
        return f"outside/{self.harness}"

    def check(self) -> None:
        """Raise ValueError for a harness that is not known or not installed."""
        known = ", ".join((*STARTS, COMMAND))
        if self.harness not in STARTS and self.harness != COMMAND:
            raise ValueError(f"{self.harness!r} is no harness that practice can run: {known}")
        if (self.harness == COMMAND) != bool(self.command):
            raise ValueError(f"a `command` is given for the harness {COMMAND!r} and for no other")
        program = STARTS[self.harness].program if self.harness in STARTS else "."
        if not self.directory.is_dir() or not (self.directory / program).exists():
            raise ValueError(
                f"{self.directory} has no {program}: let `directory` name the folder that {self.harness} is "
                "installed in"
            )
        if self.max_turns < 1 or self.wall_s <= 0:
            raise ValueError(f"max_turns {self.max_turns} and wall_s {self.wall_s} are above zero")

    def start(self, url: str, task: str) -> OutsideStart:
        """Return how the harness is started on a task, with the model at `url`."""
        if self.harness in STARTS:
            return STARTS[self.harness].start(url, task)
        return command_start(self.command, url, task)
