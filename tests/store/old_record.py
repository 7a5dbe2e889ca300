"""A record of old sessions, one in each situation that decides whether it may go for its age."""

from collections.abc import Callable
from dataclasses import replace

from tests.store.builders import group, session, turn, version

from ostinato.store import Ledger, Phase, Stage, Store
from ostinato.store.ledger.slots import Slots
from ostinato.store.passes import Passes, PassKey
from ostinato.store.settled import Stays
from ostinato.store.upkeep import DAY_S
from ostinato.types import (
    Ending,
    Event,
    Group,
    PartState,
    Reward,
    RewardPart,
    Signal,
    SignalKind,
    Source,
    State,
)

NOW = 100 * DAY_S
OLD, LINE = NOW - 40 * DAY_S, NOW - 30 * DAY_S
"""When the sessions began, and the moment before which they may go."""
TEXT, TOKENS = "the-comment-that-must-go", (424242, 434343, 444444)


def add(
    store: Store,
    id: str,
    state: State | None = None,
    *,
    at: float = OLD,
    turns: int = 2,
    words: int = 1,
    **rest: object,
) -> None:
    """Record an ended live session of ada, who agreed: turns in `state`, a signal, an event and a reward."""
    store.accounts.set_consent(user="ada", granted=True, by="ada")
    store.accounts.set_consent(organisation="acme", granted=True, by="legal")
    fields = {"ending": Ending.FINISHED, "consent": True, "started_at": at, **rest}
    said = Signal(
        session_id=id, kind=SignalKind.COMMENT, value=TEXT, observed_at=at, received_at=at, id=f"said/{id}"
    )
    event = Event(id=f"e/{id}", name="user.prompt", user="ada", observed_at=at, session_id=id)
    store.record(
        [replace(turn(i, id), started_at=at, prompt_ids=TOKENS * words) for i in range(turns)],
        [said],
        [session(id, **fields)],
        [event],
    )
    store.add_rewards((Reward(session_id=id, definition="d", parts=(RewardPart(name="kept", value=1.0),)),))
    if state is not None:
        Ledger(store).account_sessions([id], state)


def of(id: str, *turns: int) -> Group:
    """Return the group of one that a live session is offered as."""
    return replace(group(f"of {id}", session_id=id, turns=turns), prompt=f"live/{id}")


def trained(store: Store, id: str, number: int = 4, **rest: object) -> None:
    """The session that a version was trained on; a turn that came later has no state."""
    add(store, id, **rest)
    ledger = Ledger(store)
    ledger.offer(of(id, 0), stage=Stage.LIVE)
    ledger.claim(number, 1, 0)
    ledger.commit(version(number, f"of {id}"))


def offered(store: Store, id: str) -> None:
    add(store, id)
    Ledger(store).offer(of(id, 0, 1), stage=Stage.LIVE)


def claimed(store: Store, id: str) -> None:
    offered(store, id)
    Ledger(store).claim(9, 1, 0)


def reserved(store: Store, id: str) -> None:
    add(store, id, State.STALE)
    Ledger(store).reserve(f"live/{id}", Stage.LIVE)


def shown(store: Store, id: str) -> None:
    add(store, id, State.STALE)
    Ledger(store).reserve(f"prompt of {id}", Stage.LIVE, [id])


def planned(store: Store, id: str) -> None:
    """The branch of a session whose slot is planned."""
    add(store, id, State.VOID, source=Source.PRACTICE)
    Slots(store).plan(f"prompt of {id}", [id.partition("-")[0]])


def measured(store: Store, id: str) -> None:
    add(store, id, State.MEASURED, source=Source.BENCH)
    Passes(store.database).begin(PassKey(suite="s", hash="9f", side="v", task="t", number=0), id)


def immature(store: Store, id: str) -> None:
    add(store, id)
    part = RewardPart(name="outcome", value=0.0, state=PartState.CENSORED)
    store.add_rewards((Reward(session_id=id, definition="d", parts=(part,)),))


def heard_of(store: Store, id: str) -> None:
    add(store, id, State.STALE)
    late = Signal(session_id=id, kind=SignalKind.RATING, value=1.0, observed_at=LINE, id=f"late/{id}")
    store.record([], [late])


def practised(store: Store, id: str) -> None:
    add(store, id, State.TRAINED, source=Source.PRACTICE)


STAY: dict[str, tuple[Callable[[Store, str], None], Stays]] = {
    "open": (lambda store, id: add(store, id, State.STALE, ending=None), Stays.OPEN),
    "interrupted": (lambda store, id: add(store, id, source=Source.BENCH, ending=None), Stays.OPEN),
    "heard": (heard_of, Stays.HEARD_OF),
    "claimed": (claimed, Stays.LEDGER),
    "offered": (offered, Stays.LEDGER),
    "reserved": (reserved, Stays.LEDGER),
    "shown": (shown, Stays.LEDGER),
    "planned-2": (planned, Stays.LEDGER),
    "measured": (measured, Stays.BENCHMARK),
    "censored": (lambda store, id: add(store, id, State.CENSORED), Stays.IMMATURE),
    "immature": (immature, Stays.IMMATURE),
    "uncollected": (add, Stays.UNCOLLECTED),
    "practised": (practised, Stays.LEARNT),
}
GO: dict[str, Callable[[Store, str], None]] = {
    "trained": trained,
    "stale": lambda store, id: add(store, id, State.STALE),
    "withheld": lambda store, id: add(store, id, consent=False),
    "void": lambda store, id: add(store, id, State.VOID, source=Source.PRACTICE, ending=None),
    "empty": lambda store, id: add(store, id, ending=None, turns=0),
    "bench": lambda store, id: add(store, id, State.MEASURED, source=Source.BENCH),
}


def fill(store: Store) -> None:
    """Record a session in each situation, under its name, and a young one."""
    for id, make in GO.items():
        make(store, id)
    for id, (make, _) in STAY.items():
        make(store, id)
    add(store, "young", State.STALE, at=LINE)
    assert Ledger(store).live_prompts(["reserved"])["reserved"][1] is Phase.RESERVED
