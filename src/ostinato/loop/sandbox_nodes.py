"""Nodes of our own fleet under the placement of a run, for sites that have no other place for sandboxes.

::

    run, samplers ──► front, beside this process ──► sandbox-0, sandbox-1 … where the placement finds room
"""

from collections.abc import Mapping

from ostinato.fleet.server.access import open_access
from ostinato.fleet.server.serve import FrontConfig, NodeConfig
from ostinato.loop.run import Run
from ostinato.loop.services import Services

NODE, FRONT = "ostinato.fleet.server.placed_node", "ostinato.fleet.server.placed_front"
ANY_CPU = 2.0
"""The limit with which a busy CPU refuses no sandbox: the nodes work for this run alone."""


async def start_nodes(services: Services, run: Run, count: int, backend: str) -> Mapping[str, str]:
    """Start so many nodes and their front; return the environment by which `remote` finds them.

    The front reads the nodes' addresses from their state directories, which all hosts of a run see, and it
    is started again when a node has moved. What was in the sandboxes of a lost node is lost with it: those
    sessions are void, and sampled again.
    """
    folder = run.directory.resolve() / "sandboxes"
    states = [folder / f"node-{number}" for number in range(count)]
    for state in (*states, folder / "front"):
        open_access(state)
    nodes = [
        await services.start(f"sandbox-{number}", NODE, NodeConfig(state=state, backend=backend))
        for number, state in enumerate(states)
    ]
    front = await services.start(
        "sandboxes",
        FRONT,
        FrontConfig(state=folder / "front", port=0, node_states=tuple(states), cpu_limit=ANY_CPU),
        beside=True,
    )
    for node in nodes:
        node.on_moved.append(front.kill)
    key = (folder / "front" / "key").read_text()
    return {"OSTINATO_SANDBOX_URL": front.url, "OSTINATO_SANDBOX_KEY": key}
