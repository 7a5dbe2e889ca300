"""The undo of a prompt's changes, from the session's log."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ostinato.harness.conversation import Conversation
from ostinato.harness.session_log import LogEvent, LogEventKind
from ostinato.harness.workspace.checkpoints import Checkpoints, Restored

Step = tuple[str, str]
"""The trees before and after one call."""


def steps(events: Iterable[LogEvent]) -> list[Step]:
    """Return the steps of the last prompt that changed anything and was not undone, in order."""
    prompts: list[list[Step]] = [[]]
    for event in events:
        if event.kind is LogEventKind.USER:
            prompts.append([])
        elif event.kind is LogEventKind.EDIT:
            before, after = event.data["trees"]
            if (before, after) not in prompts[-1]:
                prompts[-1].append((before, after))
        elif event.kind is LogEventKind.UNDO:
            prompts = [*_with_edits(prompts)[:-1], []]
    return next(iter(reversed(_with_edits(prompts))), [])


async def undo(checkpoints: Checkpoints, conversation: Conversation) -> Restored | None:
    """Undo the last prompt's changes and let the model know; None when there is nothing to undo.

    Raises GitError, and OSError for a file that cannot be written.
    """
    events = conversation.log.events if conversation.log is not None else []
    restored: dict[str, None] = {}
    left: dict[str, None] = {}
    last = steps(events)
    for before, after in reversed(last):
        done = await checkpoints.undo(before, after)
        restored |= dict.fromkeys(done.restored)
        left |= dict.fromkeys(done.left)
    if not last:
        return None
    result = Restored(restored=tuple(restored), left=tuple(left))
    conversation.undone(result.restored, result.left)
    return result


async def complete(checkpoints: Checkpoints, conversation: Conversation) -> None:
    """Note the edits of a call during which the process died."""
    events: Sequence[LogEvent] = conversation.log.events if conversation.log is not None else []
    cut = _cut(events)
    if cut is None:
        return
    trees = [cut["tree"], await checkpoints.take()]
    for path in await checkpoints.changed(trees[0], trees[1]):
        conversation.note(
            LogEventKind.EDIT,
            id=cut["id"],
            path=path,
            before=None,
            after=None,
            lines=[],
            trees=trees,
            cut=True,
        )


def _cut(events: Sequence[LogEvent]) -> Mapping[str, Any] | None:
    """Return the checkpoint that nothing follows: the process died before the call's result."""
    for event in reversed(events):
        if event.kind is LogEventKind.CHECKPOINT:
            return event.data
        if event.kind is not LogEventKind.OBSERVATION or event.data["error"] != "UserAborted":
            return None
    return None


def _with_edits(prompts: list[list[Step]]) -> list[list[Step]]:
    return [steps for steps in prompts if steps]
