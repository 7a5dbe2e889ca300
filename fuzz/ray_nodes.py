"""A Ray cluster of three nodes on this machine, each of them real processes, with little memory.

On a busy machine Ray gives a node up that starts: when its agents take longer than 15 s to say their ports,
or all of it longer than 30 s. Neither is a setting; `patient_starts` says the ports beforehand and asks on.
"""

import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import Any

MEMORY = 80 * 2**20
NOTICED = {
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}
"""Ray counts a silent node as dead after about 18 s, and after about 65 s where nothing is set."""
START_S = 240
"""The longest time that a node may take to start on a busy machine, and a process of it."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_gcs_server_port_wait_time_s": str(START_S),
    "RAY_worker_register_timeout_seconds": str(START_S),
}

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
"""The ports that a node's agents say in files of the session's folder."""


LEAN = {"enable_metrics_collection": False, "event_stats": False, "task_events_report_interval_ms": 0}
"""Settings of a cluster that measures nothing about itself."""


@contextmanager
def three_nodes(cpus: int = 4, settings: dict[str, Any] = NOTICED, *, logs: bool = True) -> Iterator[Any]:
    """Start the head and two further nodes, with the label `region` r1 and r2; end them afterwards.

    `logs` says whether a process of Ray's reads all logs and sends them to drivers.
    """
    os.environ |= QUIET
    with warnings.catch_warnings(), patient_starts():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": cpus,
                "object_store_memory": MEMORY,
                "include_dashboard": False,
                "_system_config": settings,
                "include_log_monitor": logs,
            },
        )
        try:
            for region in ("r1", "r2"):
                add_node(cluster, region, cpus)
            yield cluster
        finally:
            cluster.shutdown()


@contextmanager
def patient_starts() -> Iterator[None]:
    """Let Ray wait longer for a node that starts."""
    from ray._private import services

    asked_once, started = services.get_node, services.start_raylet

    def asked(*arguments: Any) -> Any:
        until = time.monotonic() + START_S
        while True:
            try:
                return asked_once(*arguments)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def starting(*arguments: Any, **more: Any) -> Any:
        given = signature(started).bind(*arguments, **more)
        for name in PORTS:
            port = given.arguments[name] = given.arguments.get(name) or _free_port()
            folder, node = given.arguments["session_dir"], given.arguments["node_id"]
            Path(folder, f"{name}_{node}").write_text(str(port))
        return started(*given.args, **given.kwargs)

    services.get_node, services.start_raylet = asked, starting
    try:
        yield
    finally:
        services.get_node, services.start_raylet = asked_once, started


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


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


JOIN = """
from fuzz.ray_nodes import patient_starts
from ray.scripts.scripts import main
with patient_starts():
    main()
"""
"""The program `ray`, with patience."""
MACHINE = "/proc/sys/kernel/random/boot_id"
IN_ITS_OWN = f'mount --bind "$0" {MACHINE} && exec "$@"'


@contextmanager
def other_machine(cluster: Any, folder: Path, place: str) -> Iterator[None]:
    """Let a node join that takes itself for another machine, in a mount namespace of its own (for root).

    It has the resource `place` once.
    """
    (folder / "boot_id").write_text("another kernel")
    words = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        IN_ITS_OWN,
        str(folder / "boot_id"),
        sys.executable,
        "-c",
        JOIN,
    ]
    words += ["start", "--block", f"--address={cluster.address}", "--num-cpus=2"]
    words += [f"--object-store-memory={MEMORY}", f'--resources={{"{place}": 1}}']
    with (folder / "node.log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as node:
        try:
            until = time.monotonic() + START_S
            while not any(place in each["Resources"] for each in cluster.global_state.node_table()):
                if node.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((folder / "node.log").read_text()[-2000:])
                time.sleep(0.2)
            yield
        finally:
            node.terminate()


def pids_of(node: Any) -> list[int]:
    """Return the ids of all processes of a node, services and their children included, parents first."""
    found = [process.process.pid for group in node.all_processes.values() for process in group]
    for pid in found:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in children.read_text().split()]
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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
