"""The process of a task in the background: it begins without a terminal, works, and writes its report.

A person cannot be asked, so what is permitted is said whole before the terminal is let go. An ending is the
agent's own, or the person's `stop`. Everything else that ends it is a failure of ours, and makes the session
void: a machine that shuts down, a full disk, a key that was revoked.
"""

import asyncio
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ostinato.config import ConfigError
from ostinato.harness.client import GatewayRefused, GatewayUnavailable, Reply
from ostinato.harness.frontends.background.place import changed_in, copy_files
from ostinato.harness.frontends.background.tasks import (
    BackgroundTask,
    BackgroundTasks,
    TaskReport,
    TestCommand,
    boot_id,
    make_room,
)
from ostinato.harness.frontends.plain import verdict
from ostinato.harness.frontends.replay import recorded_call
from ostinato.harness.frontends.screen import Screen, at_home
from ostinato.harness.git import GitError, worktree
from ostinato.harness.session_log import LogError, LogEvent, LogEventKind
from ostinato.harness.users import SilentUser, visible
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.harness.workspace.workbench import Options, Workbench
from ostinato.sandbox.base import SandboxError
from ostinato.types import Ending, SignalKind, new_id
from ostinato.web.joined import NO_KEY

MAX_TURNS = 1_000
PATIENCE_S = 3_600.0
"""The seconds for which a task waits for a gateway that is away: nobody waits for the task."""
WIDTH = 120
TESTING = re.compile(
    r"(?<![a-z])((py|unit|c|vi|doc)?tests?|checks?|jest|tox|nox|r?spec)(?![a-z])", re.IGNORECASE
)
"""The words by which a command tests the work."""
FAILED_LINE = re.compile(r"\[exit code \d+.*\]")
STOPPED = "stopped by `ostinato background stop`"
TOLD_TO_END = "its process was told to end, as a machine does that shuts down"
EXPECTED = (
    ConfigError,
    GatewayRefused,
    GatewayUnavailable,
    GitError,
    LogError,
    OSError,
    SandboxError,
)
DONE, FAILED, WRONG = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a task.

    >>> Start(prompt="mend the build").here
    False
    """

    prompt: str
    here: bool = False
    """Work in the person's own folder, and not in a copy of it."""


def begin(start: Start, options: Options, console: Console) -> int:
    """Begin a task in a process of its own, say what it may do, and return the exit status.

    The process is forked, so that no key stands among its arguments. It is the leader of a session of its
    own: neither the end of the terminal nor Ctrl-C reaches it.
    """
    if not options.key:
        console.print(f"ostinato: {NO_KEY}")
        return WRONG
    receiving, sending = os.pipe()
    if (child := os.fork()) == 0:
        os.close(receiving)
        os.setsid()
        if os.fork() == 0:
            _detached(start, options, sending)
        os._exit(DONE)
    os.close(sending)
    os.waitpid(child, 0)
    with os.fdopen(receiving) as told:
        said = json.loads(told.read() or '{"error": "the background process ended before it began"}')
    if "error" in said:
        console.print(f"ostinato: {said['error']}", style="red", markup=False, soft_wrap=True)
        return WRONG
    console.print(said["text"], markup=False, soft_wrap=True)
    return DONE


def _detached(start: Start, options: Options, sending: int) -> None:
    """Carry out a task in this process, which ends with it. A start that fails leaves nothing behind."""
    task_id = new_id()
    tasks = BackgroundTasks.of(options.sessions)
    told: list[str] = []

    def tell(kind: str, text: str) -> None:
        if not told:
            os.write(sending, json.dumps({kind: text}).encode())
            os.close(sending)
        told.append(kind)

    status = FAILED
    try:
        tasks.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_to(tasks.text(task_id))
        status = asyncio.run(_Run(task_id, start, options, tasks, tell).run())
    except BaseException as error:
        if not isinstance(error, EXPECTED):
            traceback.print_exc()
        tell("error", _why(error))
        if "text" not in told:
            tasks.forget(task_id)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _write_to(file: Path) -> None:
    """Send what this process prints to a file, and let its terminal go."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, to in ((0, nothing), (1, descriptor), (2, descriptor)):
        os.dup2(to, number)
    for opened in (nothing, descriptor):
        os.close(opened)


class _Announcing(Screen):
    """A screen that notes the first reply: from then on the gateway knows the session."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.replied = asyncio.Event()

    def reply(self, reply: Reply) -> None:
        super().reply(reply)
        self.replied.set()


class _Run:
    """One task, from its start to its report."""

    def __init__(
        self,
        task_id: str,
        start: Start,
        options: Options,
        tasks: BackgroundTasks,
        tell: Callable[[str, str], None],
    ) -> None:
        self._id = task_id
        self._start = start
        self._options = options
        self._tasks = tasks
        self._tell = tell

    async def run(self) -> int:
        root = await worktree(self._options.directory)
        place = root if self._start.here else self._tasks.copy(self._id) / root.name
        checkpoints = await Checkpoints.open(root, self._options.sessions.directory.parent / "checkpoints")
        first = await checkpoints.take()
        task = BackgroundTask(
            id=self._id,
            prompt=self._start.prompt,
            root=str(root),
            place=str(place),
            url=self._options.url,
            started_at=time.time(),
            first=first,
            pid=os.getpid(),
            boot=boot_id(),
        )
        with self._tasks.begun(task) as lock:
            try:
                if task.is_copy:
                    await copy_files(checkpoints, first, place)
                report = await self._work(
                    task, checkpoints if not task.is_copy else checkpoints.of_copy(place)
                )
            except BaseException as error:
                report = TaskReport(ending=Ending.INFRASTRUCTURE, reason=_why(error), ended_at=time.time())
                raise
            finally:
                checkpoints.close()
                make_room(lock)
                self._tasks.write(replace(task, report=report))
        return DONE if report.ending is Ending.FINISHED else FAILED

    async def _work(self, task: BackgroundTask, checkpoints: Checkpoints) -> TaskReport:
        screen = _Announcing(Console(file=sys.stdout, width=WIDTH, highlight=False))
        options = replace(
            self._options,
            directory=Path(task.place),
            config=replace(self._options.config, max_turns=MAX_TURNS),
            patience_s=PATIENCE_S,
        )
        bench = await Workbench.open(options, SilentUser(), screen, session_id=self._id)
        try:
            await bench.model()  # a wrong key or address is said at once
        except BaseException:
            await bench.close()
            raise
        self._tell("text", introduction(task, bench, auto=options.auto))
        announcing = asyncio.ensure_future(self._announce(bench, screen))
        ending, reason = Ending.INFRASTRUCTURE, ""
        try:
            outcome = await bench.prompt(task.prompt)
            ending, reason = outcome.ending, verdict(outcome)
        except asyncio.CancelledError:
            asked = self._tasks.was_asked_to_stop(self._id)
            ending, reason = (Ending.ABANDONED, STOPPED) if asked else (ending, TOLD_TO_END)
        except Exception as error:
            traceback.print_exc()
            reason = _why(error)
        finally:
            announcing.cancel()
            if screen.replied.is_set():
                await bench.post(SignalKind.BACKGROUND, 1.0, "background")
            await bench.close(ending)
        for notice in bench.notices:
            screen.say(f"ostinato: {notice}", "yellow")
        log = bench.conversation.log
        events = log.events if log is not None else []
        return report_of(events, ending, reason, await changed_in(checkpoints, task.first))

    async def _announce(self, bench: Workbench, screen: _Announcing) -> None:
        """Record early that the session works by itself: a machine may go down before it ends."""
        await screen.replied.wait()
        await bench.post(SignalKind.BACKGROUND, 1.0, "background")


def introduction(task: BackgroundTask, bench: Workbench, *, auto: bool) -> str:
    """Return what a person reads as a task begins: where it works, and all that it may do."""
    where = (
        f"works in {at_home(Path(task.place))}, a copy of your files as they are now, without those that git "
        "ignores"
        if task.is_copy
        else f"works in {at_home(Path(task.root))} itself"
    )
    rules = [visible(f"  {rule}") for rule in bench.permissions.rules]
    others = "permitted, since you said --auto" if auto else "refused, since nobody is there to ask"
    short = task.id[:8]
    return "\n".join(
        [
            *(f"ostinato: {notice}" for notice in bench.notices),
            f"background task {task.id} {where}",
            "its rules, of which the last one that matches decides, but for a denial, which always does:",
            *rules,
            f"every other call is {others}",
            f"follow it: ostinato background follow {short}; stop it: ostinato background stop {short}",
        ]
    )


def report_of(events: Sequence[LogEvent], ending: Ending, reason: str, files: tuple[str, ...]) -> TaskReport:
    """Return the report of a session from its log."""
    replies = [event for event in events if event.kind is LogEventKind.REPLY]
    last = replies[-1].data["message"].get("content") if replies else None
    return TaskReport(
        ending=ending,
        message=last or "",
        reason=reason,
        files=files,
        checks=checks_of(events),
        turns=len(replies),
        summaries=sum(event.kind is LogEventKind.SUMMARY for event in events),
        ended_at=time.time(),
    )


def checks_of(events: Sequence[LogEvent]) -> tuple[TestCommand, ...]:
    """Return the commands that tested the work and were run, each with its last result."""
    commands: dict[str, str] = {}
    results: dict[str, bool] = {}
    for event in events:
        if event.kind is LogEventKind.CALL and event.data["tool"] == "bash":
            commands[event.data["id"]] = str(recorded_call(event).arguments.get("command", ""))
        elif event.kind is LogEventKind.OBSERVATION and event.data["id"] in commands:
            command = commands[event.data["id"]]
            if TESTING.search(command) and event.data["error"] in {None, "ToolTimeout"}:
                # The harness appends the status, and a line on the use of tokens.
                failed = any(map(FAILED_LINE.fullmatch, event.data["text"].splitlines()[-2:]))
                results.pop(command, None)
                results[command] = event.data["error"] is None and not failed
    return tuple(TestCommand(command=command, passed=passed) for command, passed in results.items())


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror}"
    return str(error) or type(error).__name__
