"""Every client does a whole task; what it leaves in the store is exactly what the model said."""

from itertools import pairwise

import pytest
from tests.clients.conftest import AFTER, Door
from tests.clients.drive import CLIENTS, Client, run

from ostinato.types import Turn

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
    sessions = door.store.sessions()
    turns = [turn for session in sessions for turn in door.store.turns(session.id)]
    assert {turn.id: turn.completion.ids for turn in turns} == door.editor.said
    for a, b in pairwise(turns):
        if (a.session_id, a.segment) == (b.session_id, b.segment):
            assert extends(b, a)
