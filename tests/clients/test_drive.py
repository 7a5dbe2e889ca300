"""Every real client does a whole task, and the store holds exactly what the model sampled."""

import pytest
from tests.clients.conftest import AFTER, Door
from tests.clients.drive import CLIENTS, Client, run
from tests.clients.exact import check_exact

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
async def test_a_whole_task_is_recorded_exactly(client: Client, door: Door) -> None:
    if client.missing is not None:
        pytest.skip(client.missing)
    output = await run(client, door.desk)
    assert (door.desk.repo / "calc.py").read_text() == AFTER, output
    check_exact(door.store, door.editor.said, client.turns)
