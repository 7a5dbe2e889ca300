"""The check that a client's session was recorded exactly."""

from collections.abc import Mapping
from itertools import pairwise

from ostinato.store import Store
from ostinato.types import Turn, TurnKind


def check_exact(store: Store, said: Mapping[str, tuple[int, ...]], turns: int) -> None:
    """Assert that one session holds every sampled id, and that `turns` turns of work extend each other."""
    (session,) = store.sessions()
    recorded = store.turns(session.id)
    assert {turn.id: turn.completion.ids for turn in recorded} == said
    assert [turn.untrainable for turn in recorded] == [None] * len(recorded)
    assert [turn.broken for turn in recorded] == [None] * len(recorded)
    work = [turn for turn in recorded if turn.kind is TurnKind.MAIN]
    assert len(work) == turns
    assert len({turn.segment for turn in work}) == 1
    assert all(extends(later, earlier) for earlier, later in pairwise(work))


def extends(later: Turn, earlier: Turn) -> bool:
    kept = earlier.prompt_ids + earlier.completion.ids
    return later.prompt_ids[: len(kept)] == kept
