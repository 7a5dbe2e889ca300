"""The commands `ostinato background …`: list tasks, show, follow and stop one, take or drop its changes."""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.config import secret
from ostinato.web.joined import KEY, joined

if TYPE_CHECKING:
    from ostinato.harness.frontends.background.tasks import BackgroundTask, BackgroundTasks, TaskState

Commands = argparse._SubParsersAction
DONE, FAILED, WRONG = 0, 1, 2
POLL_S = 0.3


def register(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add them to the command line."""
    verbs = commands.add_parser("background").add_subparsers(required=True, metavar="COMMAND")
    for name, text, run, named in (
        ("list", "the tasks and their states, the newest first", list_tasks, False),
        ("show", "what a task is, and its report", show, True),
        ("follow", "show what a task does until it ends, then its report", follow, True),
        ("stop", "let a task end now, with a report", stop, True),
        ("take", "put the changes of a task that ended into your files", take, True),
        ("drop", "throw the changes of a task that ended away", drop, True),
    ):
        parser = verbs.add_parser(name, help=text)
        if named:
            parser.add_argument(
                "id", nargs="?", default="", help="its id, or the beginning of it (default: the last one)"
            )
        if name in {"list", "show"}:
            parser.add_argument("--json", action="store_true", help="print one JSON object")
        if name in {"take", "drop"}:
            parser.add_argument(
                "--key-file",
                type=Path,
                default=None,
                help="a file with the API key (or set OSTINATO_KEY): the gateway is told",
            )
        parser.set_defaults(run=_reader(run))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A task that a command is about."""

    tasks: "BackgroundTasks"
    task: "BackgroundTask"
    state: "TaskState"


def _reader(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(options: argparse.Namespace) -> int:
        from ostinato.harness.git import GitError
        from ostinato.harness.session_log import LogError

        try:
            return run(options)
        except (LogError, GitError) as error:
            return _refuse(str(error))

    return guarded


def list_tasks(options: argparse.Namespace) -> int:
    tasks = _tasks()
    found = [_Found(tasks=tasks, task=task, state=tasks.state(task)) for task in tasks.all()]
    if options.json:
        _say(json.dumps({"tasks": [_as_json(each) for each in found]}, ensure_ascii=False))
        return DONE
    for each in found:
        _say("  ".join([each.task.id[:12], _began(each.task), each.state.value, *_first(each)]))
    if not found:
        _say(f"no background task in {tasks.directory}: `ostinato code --background` begins one")
    return DONE


def show(options: argparse.Namespace) -> int:
    found = _meant(options.id)
    _say(json.dumps(_as_json(found), ensure_ascii=False) if options.json else _described(found))
    return DONE


def follow(options: argparse.Namespace) -> int:
    """Print what the task printed and prints, until it is over; status 0 when its agent finished."""
    from ostinato.harness.frontends.background.tasks import TaskState
    from ostinato.types import Ending

    found = _meant(options.id)
    with found.tasks.text(found.task.id).open(encoding="utf-8", errors="replace") as printed:
        working = True
        while working:
            working = found.tasks.state(found.task) is TaskState.WORKING
            sys.stdout.write(printed.read())
            sys.stdout.flush()
            if working:
                time.sleep(POLL_S)
    found = _meant(found.task.id)
    _say(_described(found))
    report = found.task.report
    return DONE if report is not None and report.ending is Ending.FINISHED else FAILED


def stop(options: argparse.Namespace) -> int:
    """Stop a task, and wait until its process is over."""
    from ostinato.harness.frontends.background.tasks import TaskState, boot_id

    found = _meant(options.id)
    if found.state is not TaskState.WORKING:
        return _refuse(f"background task {found.task.id} does not work any more: it is {_state(found)}")
    if found.task.boot != boot_id():
        return _refuse(f"background task {found.task.id} works on another machine: stop it there")
    found.tasks.ask_to_stop(found.task.id)
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(found.task.pid, signal.SIGTERM)
    while found.tasks.state(found.task) is TaskState.WORKING:
        time.sleep(POLL_S)
    _say(_described(_meant(found.task.id)))
    return DONE


def take(options: argparse.Namespace) -> int:
    """Put the changes of a copy into the person's files, all or none of them."""
    return _settle(options, "take")


def drop(options: argparse.Namespace) -> int:
    """Remove a copy with its changes."""
    return _settle(options, "drop")


def _settle(options: argparse.Namespace, verb: str) -> int:
    from dataclasses import replace

    from ostinato.harness.frontends.background.settle import dropped, taken
    from ostinato.harness.frontends.background.tasks import TaskState

    found = _meant(options.id)
    task = found.task
    if found.state is TaskState.WORKING:
        return _refuse(
            f"background task {task.id} works: wait for it, or `ostinato background stop {task.id}`"
        )
    if not task.is_copy:
        return _refuse(
            f"background task {task.id} worked in {task.root} itself: `ostinato code --undo` is there"
        )
    if task.settled is not None:
        return _refuse(f"background task {task.id} was {task.settled} already")
    key = secret(options.key_file, KEY) or joined(task.url).key
    settled = asyncio.run((taken if verb == "take" else dropped)(task, found.tasks, key))
    for line in settled.lines:
        _say(line)
    if not settled.done:
        return FAILED
    found.tasks.write(replace(task, settled=TaskState.TAKEN if verb == "take" else TaskState.DROPPED))
    shutil.rmtree(found.tasks.copy(task.id))
    return DONE


def _tasks() -> "BackgroundTasks":
    from ostinato.harness.frontends.background.tasks import BackgroundTasks
    from ostinato.harness.session_log import Sessions

    return BackgroundTasks.of(Sessions.of_user())


def _meant(given: str) -> _Found:
    tasks = _tasks()
    task = tasks.meant(given)
    return _Found(tasks=tasks, task=task, state=tasks.state(task))


def _state(found: _Found) -> str:
    from ostinato.harness.frontends.background.tasks import TaskState, cause_of_death

    if found.state is not TaskState.DEAD:
        return found.state.value
    return f"dead: {cause_of_death(found.task)}. It counts as void, and how far it came is in its folder"


def _as_json(found: _Found) -> dict[str, Any]:
    from ostinato.harness.frontends.background.tasks import TaskState, cause_of_death
    from ostinato.types import to_json

    death = cause_of_death(found.task) if found.state is TaskState.DEAD else None
    return {**to_json(found.task), "state": found.state.value, "death": death}


def _first(found: _Found) -> list[str]:
    from ostinato.harness.users import visible

    report = found.task.report
    ending = [report.ending.value] if report is not None else []
    return [*ending, found.task.root, visible(found.task.prompt).split("\n")[0][:60]]


def _described(found: _Found) -> str:
    """Return a task and its report as a person reads them."""
    from ostinato.harness.frontends.screen import at_home
    from ostinato.harness.tools.names import shown
    from ostinato.harness.users import visible

    task, report = found.task, found.task.report
    lines = [
        f"background task {task.id}, begun {_began(task)}: {_state(found)}",
        f"asked: {visible(task.prompt)}",
        f"in {at_home(Path(task.place))}",
    ]
    if report is None:
        return "\n".join(lines)
    why = f": {report.reason}" if report.reason else ""
    hours = (report.ended_at - task.started_at) / 3600
    lines.append(f"ended {report.ending.value}{why} after {hours:.1f} h and {report.turns} turns")
    lines.append(f"summaries of its own: {report.summaries}")
    lines += [f"changed {shown(path)}" for path in report.files] or ["no file was changed"]
    lines += [
        f"test {'passed' if check.passed else 'failed'}: {visible(check.command)}" for check in report.checks
    ] or ["it ran no test"]
    if report.message:
        lines += ["it said:", visible(report.message)]
    if task.is_copy and task.settled is None:
        short = task.id[:8]
        lines.append(f"`ostinato background take {short}` puts its changes into your files, `drop` ends them")
    return "\n".join(lines)


def _began(task: "BackgroundTask") -> str:
    return datetime.fromtimestamp(task.started_at).astimezone().strftime("%Y-%m-%d %H:%M")


def _say(text: str) -> None:
    from ostinato.harness.tools.names import presentable

    print(presentable(text))  # noqa: T201


def _refuse(message: str) -> int:
    print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
    return WRONG
