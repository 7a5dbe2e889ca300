"""Which tasks a gate asks, and which none asks.

Covers deploy/gate.py.
"""

from dataclasses import replace
from pathlib import Path

from ostinato.deploy.gate import part_frozen, tasks_of_gate
from ostinato.types import Task

SPLITS = {"seeds": 60, "families": 6}
A_TASK = Task(
    id="a", kind="fix", split="seeds", key="k", instruction="", directory=Path("nowhere"), test_ids=("t",)
)
TASKS = [
    replace(A_TASK, id=f"{split}-{number}", split=split, metadata={"cluster": str(number // 3)})
    for split, count in SPLITS.items()
    for number in range(count)
]


def clusters(tasks: list[Task], split: str) -> set[str]:
    return {task.cluster for task in tasks if task.split == split}


def test_frozen_tasks_are_whole_clusters_that_no_gate_ever_asks() -> None:
    gates, frozen = part_frozen(TASKS, 0.25)
    assert len(frozen) == 15 and sorted(t.id for t in gates + frozen) == sorted(t.id for t in TASKS)
    assert not clusters(gates, "seeds") & clusters(frozen, "seeds")
    asked = {task.id for number in range(50) for task in tasks_of_gate(gates, 0.5, f"cycle-{number}")}
    assert asked == {task.id for task in gates}
    assert part_frozen(TASKS, 0.25) == (gates, frozen)


def test_each_gate_draws_its_share_of_every_split_anew() -> None:
    gates = [tasks_of_gate(TASKS, 0.5, f"cycle-{number}") for number in range(20)]
    assert all(len(clusters(gate, "seeds")) == 10 and len(clusters(gate, "families")) == 1 for gate in gates)
    assert all(len(gate) == 33 for gate in gates), "a cluster is drawn as a whole"
    assert len({tuple(task.id for task in gate) for gate in gates}) == 20
    assert tasks_of_gate(TASKS, 0.5, "cycle-3") == gates[3]
    often = [sum(task in gate for gate in gates) for task in TASKS if task.split == "seeds"]
    assert min(often) > 2 and max(often) < 18, "no task is asked by all or by none"


def test_a_split_of_few_clusters_is_left_to_the_gates() -> None:
    gates, frozen = part_frozen(TASKS, 0.4)
    assert clusters(frozen, "families") == set() and len(clusters(frozen, "seeds")) == 8
    assert clusters(tasks_of_gate(gates, 0.1, "cycle-1"), "families")


def test_without_shares_every_gate_asks_all_tasks_in_their_order() -> None:
    gates, frozen = part_frozen(TASKS, 0.0)
    assert gates == TASKS and frozen == [] and tasks_of_gate(TASKS, 1.0, "cycle-1") == TASKS


def test_a_task_without_a_cluster_is_one_by_itself() -> None:
    assert A_TASK.cluster == "a"
