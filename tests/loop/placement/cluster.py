"""A Ray cluster of three nodes on this machine, each of them real processes, with little memory."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MEMORY = 80 * 2**20
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextmanager
def three_nodes(cpus: int = 4) -> Iterator[Any]:
    """Start the head and two further nodes, with the label `region` r1 and r2; end them afterwards."""
    os.environ |= QUIET
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": cpus, "object_store_memory": MEMORY, "include_dashboard": False},
        )
        try:
            for region in ("r1", "r2"):
                add_node(cluster, region, cpus)
            yield cluster
        finally:
            cluster.shutdown()


def add_node(cluster: Any, region: str, cpus: int = 4) -> Any:
    """Start one more node, which has the resource `place` once."""
    return cluster.add_node(
        num_cpus=cpus, object_store_memory=MEMORY, resources={"place": 1}, labels={"region": region}
    )
