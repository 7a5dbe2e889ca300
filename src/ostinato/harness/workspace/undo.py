"""The undo of a prompt's changes, from the session's log."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ostinato.harness.conversation import Conversation
from ostinato.harness.session_log import LogEvent, LogEventKind
from ostinato.harness.tools.names import shown
from ostinato.harness.workspace.checkpoints import Checkpoints, Restored

MOST_NAMED = 20
"""The most files without a checkpoint that an undo names; the others are counted."""
Step = tuple[str, str]
"""The trees before and after one call."""


@dataclass(slots=True, kw_only=True)
class _Prompt:
    """The steps of one prompt in order, and when it was sent."""

    at: float
    steps: list[Step] = field(default_factory=list)


def steps(events: Iterable[LogEvent]) -> list[Step]:
    """Return the steps of the last prompt that changed anything and was not undone, in order."""
    last = _last(events)
    return last.steps if last else []


def _last(events: Iterable[LogEvent]) -> _Prompt | None:
    prompts = [_Prompt(at=0.0)]
    for event in events:
        if event.kind is LogEventKind.USER:
            prompts.append(_Prompt(at=event.at))
        elif event.kind is LogEventKind.EDIT:
            before, after = event.data["trees"]
            if (before, after) not in prompts[-1].steps:
                prompts[-1].steps.append((before, after))
        elif event.kind is LogEventKind.UNDO:
            prompts = [*_with_edits(prompts)[:-1], _Prompt(at=event.at)]
    return next(iter(reversed(_with_edits(prompts))), None)


async def undo(checkpoints: Checkpoints, conversation: Conversation) -> Restored | None:
    """Undo the last prompt's changes and let the model know; None when there is nothing to undo.

    Raises GitError, and OSError for a file that cannot be written.
    """
    events = conversation.log.events if conversation.log is not None else []
    restored: dict[str, None] = {}
    left: dict[str, None] = {}
    last = _last(events)
    if last is None:
        begun = next((event.at for event in events if event.kind is LogEventKind.USER), math.inf)
        unsaved = await checkpoints.unsaved_since(begun)
        return Restored(restored=(), left=(), unsaved=unsaved) if unsaved else None
    unsaved = await checkpoints.unsaved_since(last.at)
    for before, after in reversed(last.steps):
        done = await checkpoints.undo(before, after)
        restored |= dict.fromkeys(done.restored)
        left |= dict.fromkeys(done.left)
    result = Restored(restored=tuple(restored), left=tuple(left), unsaved=unsaved)
    conversation.undone(result.restored, (*result.left, *unsaved[:MOST_NAMED]))
    return result


def named(paths: Sequence[str]) -> list[str]:
    """Return the names of files for a person, and how many more there are."""
    rest = len(paths) - MOST_NAMED
    return [*map(shown, paths[:MOST_NAMED]), *([f"and {rest} more"] if rest > 0 else [])]


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


def _with_edits(prompts: list[_Prompt]) -> list[_Prompt]:
    return [prompt for prompt in prompts if prompt.steps]
