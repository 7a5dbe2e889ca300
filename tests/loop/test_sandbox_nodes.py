"""Practice whose sandboxes are on nodes that the run started itself.

Covers loop/sandbox_nodes.py, fleet/server/placed_node.py and fleet/server/placed_front.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.loop.stages.test_sampler import begin, kill_one, settings, start, whole

from ostinato.config import ConfigError
from ostinato.loop.config import RunConfig, check
from ostinato.loop.workshop import standing

__all__ = ["start"]
NODES = 'sandbox = "process"\nsandbox_nodes = 2\n'


def on_nodes(text: str) -> str:
    return text.replace('sandbox = "process"\n', NODES)


def practised(directory: Path) -> dict[str, Any]:
    """Return what practice reports, once nothing is lost."""
    whole(directory)
    report: dict[str, Any] = json.loads((directory / "report.json").read_text())["practice"]
    return report


@pytest.mark.slow
def test_a_synchronous_run_ends_in_the_root_of_one_with_sandboxes_beside_it(
    tmp_path: Path, start: Path
) -> None:
    text = settings(start, mode="synchronous", versions=2)
    for name, each in (("beside", text), ("nodes", on_nodes(text))):
        process = begin(tmp_path, name, each)
        assert process.wait() == 0, (tmp_path / f"{name}.log").read_text()[-3000:]
    one, other = practised(tmp_path / "beside"), practised(tmp_path / "nodes")
    assert (one["root"], one["void"]) == (other["root"], other["void"])
    states = [tmp_path / "nodes" / "sandboxes" / name for name in ("node-0", "node-1", "front")]
    assert all((state / "key").exists() and not (state / "server.json").exists() for state in states)
    assert any((state / "templates").exists() for state in states)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["ostinato.fleet.server.placed_node", "ostinato.fleet.server.placed_front"]
)
def test_a_node_or_the_front_that_is_killed_costs_no_prompt(module: str, tmp_path: Path, start: Path) -> None:
    process = begin(tmp_path, "killed", on_nodes(settings(start, versions=4)))
    kill_one(module, tmp_path / "killed")
    assert process.wait() == 0, (tmp_path / "killed.log").read_text()[-3000:]
    assert practised(tmp_path / "killed")["version"] == 4


@pytest.mark.slow
@pytest.mark.ray
def test_nodes_of_sandboxes_are_placed_on_a_cluster(cluster: Any, tmp_path: Path, start: Path) -> None:
    text = on_nodes(settings(start, versions=2))
    text += f'\n[placement]\nkind = "ray"\naddress = "{cluster.address}"\n'
    text += "[placement.resources.sandbox]\ncpus = 0.5\n"
    process = begin(tmp_path, "ray", text)
    assert process.wait() == 0, (tmp_path / "ray.log").read_text()[-3000:]
    assert practised(tmp_path / "ray")["version"] == 2


def test_nodes_need_a_sandbox_of_their_own_machine() -> None:
    assert standing(RunConfig(sandbox_nodes=2)).count("sandbox") == 2
    check(RunConfig(sandbox_nodes=2))
    with pytest.raises(ConfigError, match="sandbox_nodes is 2 and sandbox 'e2b': nodes make sandboxes of"):
        check(RunConfig(sandbox_nodes=2, sandbox="e2b"))
    with pytest.raises(ConfigError, match="sandbox_nodes is -1"):
        check(RunConfig(sandbox_nodes=-1))
