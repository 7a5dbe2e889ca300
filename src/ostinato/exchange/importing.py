"""Sessions of other programs brought into the record, where they are demonstrations and nothing more.

::

    log ─► what was said ─► secrets redacted ─► rendered with the record's tokenizer ─► a session, IMPORTED

No token of them was sampled here, so no probability is known: the policy gradient never learns from them, and
each turn is accounted for as untrainable when it arrives. Fine-tuning may imitate them while their people
consent. A second import of a log adds what the log has gained since, and of the same log nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ostinato.exchange.conversations import ExchangeError, redacted
from ostinato.exchange.logs import LOGS
from ostinato.exchange.logs.base import Damage, Said, Transcript
from ostinato.model.families import Renderer, RenderError
from ostinato.store import PurgedError, Store, TakenError
from ostinato.store.ledger.turn_states import set_states, turns_of_sessions
from ostinato.store.outlines import outlines_of
from ostinato.store.redaction.find import redact_json
from ostinato.types import (
    TEACHER_VERSION,
    Completion,
    Distribution,
    Ending,
    FinishReason,
    Session,
    Source,
    State,
    Turn,
)

UNTRAINABLE = "imported: no token of it was sampled here"
UNDER_WAY_S = 3_600.0
"""The age of the last word, in seconds, from which a log is taken to say a whole answer."""
UNKNOWN = "unknown"
"""The arm of a session whose log names no model."""
AT_ONCE = 20
"""The turns that are recorded together: each holds its whole prompt."""
MOST_NAMED = 1_000
"""The damaged lines that are named; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The person to whom imported sessions belong.

    >>> Owner(user="ada").organisation
    ''
    """

    user: str = ""
    """Empty for the one whom the log names."""
    organisation: str = ""


@dataclass(slots=True)
class Imported:
    """The figures of an import."""

    files: int = 0
    sessions: int = 0
    """Those that are new."""
    grown: int = 0
    """Those that have gained turns since they were imported before."""
    turns: int = 0
    known: int = 0
    """Those that the record has as they are in the log."""
    unconsented: int = 0
    """The new ones that may not be trained on."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Sessions by the reason why they are not in the record."""
    damaged: int = 0
    """Lines that cannot be read."""
    named: list[Damage] = field(default_factory=list)


def files_of(format: str, places: Sequence[Path]) -> list[Path]:
    """Return the files of a format at these places, or at a person's own. Raises ExchangeError."""
    log = LOGS[format]
    if not places and log.home is None:
        raise ExchangeError(f"which logs of {format}? Name files or folders")
    found: list[Path] = []
    for place in places or ([] if log.home is None else [log.home()]):
        if place.is_dir():
            found += sorted({path for name in log.names for path in place.rglob(name)})
        elif place.is_file():
            found.append(place)
        else:
            raise ExchangeError(f"{place} is neither a file nor a folder: name the logs of {format}")
    if not found:
        where = ", ".join(map(str, places)) if places else ""
        raise ExchangeError(f"no file of {format} ({', '.join(log.names)}) in {where or 'its usual place'}")
    return found


def bring(store: Store, renderer: Renderer, format: str, files: Sequence[Path], owner: Owner) -> Imported:
    """Record the sessions of these files; nothing in a file ends it. Raises StoreError, ExchangeError."""
    figures = Imported(files=len(files))
    for each in LOGS[format].read(files):
        if isinstance(each, Damage):
            figures.damaged += 1
            figures.named += [each] if len(figures.named) < MOST_NAMED else []
        elif each.answers and (why := _record(store, renderer, each, owner, figures)):
            figures.left_out[why] = figures.left_out.get(why, 0) + 1
    return figures


def _record(
    store: Store, renderer: Renderer, transcript: Transcript, owner: Owner, figures: Imported
) -> str | None:
    """Record what a session has new; return why it is left out, or None."""
    user = owner.user or transcript.user
    if not user:
        raise ExchangeError("the log does not say whose sessions these are: --user")
    if transcript.last_at > store.now() - UNDER_WAY_S:
        return "under way: they come with an import an hour later"
    there = store.session(transcript.id)
    if there is not None and there.source is not Source.IMPORTED:
        return "recorded by the gateway already"
    if there is not None and (there.user, there.organisation) != (user, owner.organisation):
        return "purged, or imported for another person"
    session, before = _session(store, transcript, user, owner.organisation), figures.turns
    known = {turn.index for turn in outlines_of(store, [session.id]).get(session.id, ())}
    new = (turn for turn in _turns(transcript, renderer) if turn.index not in known)
    why = None
    try:
        while some := list(islice(new, AT_ONCE)):
            store.record(some, (), [session])
            figures.turns += len(some)
    except RenderError as error:
        why = f"cannot be written in the record's chat format, from some turn on: {error}"
    except PurgedError:
        why = "purged"
    except TakenError:
        why = "its turns are in the record already, and are others"
    _account(store, session.id)
    if figures.turns == before:
        figures.known += why is None
    elif there is None:
        figures.sessions += 1
        figures.unconsented += not session.consent
    else:
        figures.grown += 1
    return why


def _session(store: Store, transcript: Transcript, user: str, organisation: str) -> Session:
    last, owner = transcript.threads[-1][-1], (organisation, user)
    finished = last.answer and "tool_calls" not in last.message
    return Session(
        id=transcript.id,
        source=Source.IMPORTED,
        user=user,
        arm=transcript.model or UNKNOWN,
        task_id=None,
        harness=transcript.client,
        started_at=transcript.began_at,
        ending=Ending.FINISHED if finished else Ending.ABANDONED,
        organisation=organisation,
        consent=store.accounts.consented([owner])[owner],
    )


def _account(store: Store, id: str) -> None:
    """Account for the turns without a state: those that are new, and those of an import that was cut off."""
    with store.database.read() as connection:
        late = turns_of_sessions(connection, [id], without_state=True)
    if late:
        with store.database.write() as connection:
            set_states(store.database, connection, late, State.UNTRAINABLE, UNTRAINABLE)


def _turns(transcript: Transcript, renderer: Renderer) -> Iterator[Turn]:
    """Yield a turn for each answer: the tokens with which the record's model would read and say it."""
    number = 0
    for segment, (thread, tools) in enumerate(zip(transcript.threads, transcript.tools, strict=True)):
        offered = [redact_json(tool) for tool in tools]
        ids, waiting = list[int](), list[Said]()
        for said in thread:
            if not said.answer:
                waiting.append(said)
                continue
            messages = [redacted(each.message) for each in waiting]
            ids += renderer.extend(messages) if ids else renderer.render(messages, offered)
            out = tuple(renderer.say(redacted(said.message)))
            yield Turn(
                session_id=transcript.id,
                index=number,
                segment=segment,
                arm=transcript.model or UNKNOWN,
                prompt_ids=tuple(ids),
                completion=Completion(
                    ids=out,
                    logprobs=(0.0,) * len(out),
                    versions=(TEACHER_VERSION,) * len(out),
                    finish=FinishReason.STOP,
                    distribution=Distribution.UNKNOWN,
                ),
                started_at=said.at,
                latency_s=0.0,
            )
            ids, waiting, number = [*ids, *out], [], number + 1
