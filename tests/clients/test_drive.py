"""Every client does a whole task; what it leaves in the store is exactly what the model said."""

from itertools import pairwise

import pytest
from tests.clients.conftest import AFTER, Door
from tests.clients.drive import CLIENTS, Client, run

from ostinato.types import Turn, TurnKind

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def extends(later: Turn, earlier: Turn) -> bool:
    kept = earlier.prompt_ids + earlier.completion.ids
    return later.prompt_ids[: len(kept)] == kept


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
async def test_a_whole_task_is_recorded_exactly(client: Client, door: Door) -> None:
    if client.missing is not None:
        pytest.skip(client.missing)
    output = await run(client, door.desk)
    assert (door.desk.repo / "calc.py").read_text() == AFTER, output
    (session,) = door.store.sessions()
    turns = door.store.turns(session.id)
    assert {turn.id: turn.completion.ids for turn in turns} == door.editor.said
    assert [turn.untrainable for turn in turns] == [None] * len(turns)
    assert [turn.broken for turn in turns] == [None] * len(turns)
    work = [turn for turn in turns if turn.kind is TurnKind.MAIN]
    assert len(work) == client.turns
    assert len({turn.segment for turn in work}) == 1
    assert all(extends(later, earlier) for earlier, later in pairwise(work))
