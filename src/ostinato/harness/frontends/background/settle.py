"""The person's word on a task that ended: its changes are taken into their files, or dropped.

It is the outcome of the session, so the gateway is told. Where the edit journal is installed the edits are
told there instead, and what becomes of each of them is followed like that of any other.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from ostinato.harness.client import GatewayClient, GatewayRefused, GatewayUnavailable, open_http
from ostinato.harness.conversation import Call
from ostinato.harness.frontends.background.place import take_files
from ostinato.harness.frontends.background.tasks import BackgroundTask, BackgroundTasks
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.session_log import LogEventKind, Sessions
from ostinato.harness.tools.names import shown
from ostinato.harness.workspace.checkpoints import Checkpoints
from ostinato.harness.workspace.edit_journal import EditJournal
from ostinato.types import Signal, SignalKind

CONNECT_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The fate of the changes of a task, in lines for a person.

    >>> Settled(done=False).lines
    ()
    """

    done: bool
    lines: tuple[str, ...] = ()


async def taken(task: BackgroundTask, tasks: BackgroundTasks, key: str) -> Settled:
    """Put a task's changes into the person's files; where somebody changed one of them too, none is."""
    root, home = Path(task.root), tasks.directory.parent / "checkpoints"
    checkpoints = await Checkpoints.open(root, home)
    try:
        last, both = await take_files(checkpoints, task.first, Path(task.place))
        if both:
            names = ", ".join(map(shown, both))
            words = f"you changed {names} too, so nothing was taken: merge them from {task.place}, or set "
            return Settled(done=False, lines=(f"ostinato: {words}yours aside first (git stash)",))
        edits = await checkpoints.edits(task.first, last)
        journal = await EditJournal.of(root)
        turn, model = _last_reply(tasks, task)
        for edit in edits:
            call = Call(
                id=f"{task.id}/take", name="edit", arguments={}, meant=Reading(tool="edit", arguments={})
            )
            journal.tell(task.id, turn, model, call, edit)
        await journal.drain()
    finally:
        checkpoints.close()
    files = [edit.path for edit in edits if not edit.path.endswith("/")]
    lines = tuple(f"changed {shown(path)}" for path in files) or ("no file was changed",)
    if not edits or journal.wanted:
        return Settled(done=True, lines=lines)
    return Settled(done=True, lines=lines + await _tell(task, key, SignalKind.EDIT_KEPT))


async def dropped(task: BackgroundTask, tasks: BackgroundTasks, key: str) -> Settled:
    """Give a task's changes up; a task that died is void, and no verdict on it counts."""
    if task.report is None or not task.report.files:
        return Settled(done=True)
    return Settled(done=True, lines=await _tell(task, key, SignalKind.EDIT_REVERTED))


def _last_reply(tasks: BackgroundTasks, task: BackgroundTask) -> tuple[int | None, str]:
    """Return the turn and the model of the last reply in the session's log."""
    events = Sessions(directory=tasks.directory.parent / "sessions").load(task.id)
    replies = [event.data for event in events if event.kind is LogEventKind.REPLY]
    if not replies:
        return None, "ostinato"
    version = replies[-1].get("version")
    return replies[-1].get("turn"), "ostinato" if version is None else f"ostinato-{version}"


async def _tell(task: BackgroundTask, key: str, kind: SignalKind) -> tuple[str, ...]:
    """Tell the gateway the person's word; return why it does not know it, if it does not."""
    if not key:
        return ("ostinato: the gateway was not told: no API key (OSTINATO_KEY, --key-file)",)
    signal = Signal(
        session_id=task.id, kind=kind, value=1.0, observed_at=time.time(), id=f"{task.id}/{kind.value}"
    )
    http = open_http(CONNECT_S)
    try:
        await GatewayClient(task.url, key, patience_s=CONNECT_S, http=http).signal(signal)
    except (GatewayRefused, GatewayUnavailable) as error:
        return (f"ostinato: the gateway was not told: {error}",)
    finally:
        await http.close()
    return ()
