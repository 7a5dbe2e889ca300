"""The words of people over the cycle, and its state: the audit trail."""

from sqlalchemy import select

from ostinato.dashboard.reading.base import Answer, AskedError, RecordSource, WordError
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction
from ostinato.store.sql.schema import cycle_log
from ostinato.types import Arm
from ostinato.web.plain import line_of

MOST_ENTRIES = 30
LABELS = {
    CycleAction.PROMOTE: ("Promote", "first"),
    CycleAction.PAUSE: ("Hold: pause the cycle", "second"),
    CycleAction.RESUME: ("Go on", "second"),
    CycleAction.ROLL_BACK: ("Roll back", "danger"),
}
"""The words that have a button, with the button's label and class."""
LONGEST_REASON = 300
PEOPLES = (
    CycleAction.PAUSE,
    CycleAction.RESUME,
    CycleAction.ABORT,
    CycleAction.PROMOTE,
    CycleAction.ROLL_BACK,
    CycleAction.CONFIRM,
    CycleAction.DEMOTE,
)
QUIET = (CycleAction.TRIAL_BEGAN,)
"""Entries whose detail is for programs."""


def audit(store: Store, *, since: float = 0.0, most: int = MOST_ENTRIES) -> list[Answer]:
    """Return the newest entries of the cycle's log, newest first."""
    column = cycle_log.c
    query = select(cycle_log).where(column.at >= since).order_by(column.order.desc()).limit(most)
    with store.database.read() as connection:
        rows = connection.execute(query).mappings().all()
    return [
        {
            "at": row["at"],
            "by": line_of(row["by"], 60),
            "action": row["action"],
            "of_person": row["action"] in PEOPLES,
            "cycle": line_of(row["cycle"], 40),
            "detail": "" if row["action"] in QUIET else line_of(row["detail"], 300),
        }
        for row in rows
    ]


def steering(reading: RecordSource) -> Answer | None:
    """Return the words that can be said now, and what to type to confirm them; None where nobody listens."""
    if reading.loop is None:
        return None
    state = reading.loop.state(reading.store)
    words = [CycleAction.PROMOTE, CycleAction.ROLL_BACK] if state["trial"] else []
    words.insert(1, CycleAction.RESUME if state["paused"] else CycleAction.PAUSE)
    challenger = next((arm.version for arm in _challengers(reading)), None)
    return {
        **state,
        "words": [(word.value, *LABELS[word]) for word in words],
        "challenger": challenger,
        "confirm": "the cycle" if challenger is None or not state["trial"] else f"version {challenger}",
    }


def _challengers(reading: RecordSource) -> list[Arm]:
    arms = [arm for arm in reading.store.arms() if arm.experiment and arm.share > 0]
    return arms[1:] if len(arms) == 2 else []


def decide(reading: RecordSource, by: str, word: str, confirmed: str, reason: str) -> None:
    """Say the word of a person to the cycle. Raises AskedError for a form that was not filled in, WordError
    for a word that nothing can obey now."""
    now = steering(reading)
    if reading.loop is None or now is None:
        raise WordError("only the record is open here: start it with --directory to reach the cycle")
    if word not in {each for each, _, _ in now["words"]}:
        raise WordError(f"{line_of(word, 20)!r} is not possible now: load the page again")
    if confirmed.strip().casefold() != now["confirm"]:
        raise AskedError(
            f"nothing was done: type {now['confirm']!r} to confirm, not {line_of(confirmed, 40)!r}"
        )
    if not reason.strip():
        raise AskedError("nothing was done: give a reason for the audit trail")
    reading.loop.say(reading.store, word, by, line_of(reason.strip(), LONGEST_REASON))
