"""A Ray cluster of three nodes on this machine, each of them real processes, with little memory."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MEMORY = 80 * 2**20
NOTICED = {
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}
"""Ray counts a silent node as dead after about 18 s, and after about 65 s where nothing is set."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
START_S = 240
"""A node on a busy machine starts slowly."""


@contextmanager
def three_nodes(cpus: int = 4) -> Iterator[Any]:
    """Start the head and two further nodes, with the label `region` r1 and r2; end them afterwards."""
    os.environ |= QUIET
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": cpus,
                "object_store_memory": MEMORY,
                "include_dashboard": False,
                "_system_config": NOTICED,
            },
        )
        try:
            for region in ("r1", "r2"):
                add_node(cluster, region, cpus)
            yield cluster
        finally:
            cluster.shutdown()


def add_node(cluster: Any, region: str, cpus: int = 4, place: str = "place", **environment: str) -> Any:
    """Start one more node, which has the resource `place` once, with this environment."""
    node = cluster.add_node(
        wait=False,
        num_cpus=cpus,
        object_store_memory=MEMORY,
        resources={place: 1},
        labels={"region": region},
        env_vars=environment,
    )
    cluster._wait_for_node(node, timeout=START_S)
    return node


def pids_of(node: Any) -> list[int]:
    """Return the ids of all processes of a node, services and their children included, parents first."""
    found = [process.process.pid for group in node.all_processes.values() for process in group]
    for pid in found:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in children.read_text().split()]
    return found


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, even if nobody has asked for its exit status yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
