"""A sandbox that has waited too long gets a dedicated node, where no other sandbox starts."""

from tests.fleet.scheduler.test_scheduler import NODE, SMALL, Fleet, filled, refused

from ostinato.fleet.scheduler.dedicated_nodes import AFTER_S
from ostinato.fleet.scheduler.node import RAMP_S
from ostinato.fleet.scheduler.types import (
    Kill,
    Placement,
    PlacementRequest,
    Pressure,
    Refusal,
    RefusalReason,
    ReportedSandbox,
    Size,
)
from ostinato.fleet.scheduler.warm_pool import WarmPool

HALF = Size(2000, 2048, 2048)
LONG_S = 10_000.0


def crowded(nodes: int = 1) -> Fleet:
    """Return a fleet with a small sandbox on every node, and one that waits for a whole node."""
    fleet = Fleet(nodes)
    for number in range(nodes):
        request = PlacementRequest(id=f"s{number}", template="t", size=SMALL, deadline_s=LONG_S)
        fleet.scheduler.reconcile(f"n{number}", [ReportedSandbox(request=request, age_s=0.0)])
    wait_for_a_node(fleet, "large")
    return fleet


def wait_for_a_node(fleet: Fleet, sandbox: str, size: Size = NODE) -> None:
    start = fleet.now
    while fleet.now < start + AFTER_S + 5:
        refused(fleet.ask(sandbox, size=size))
        fleet.wait(1)


def test_a_large_sandbox_is_not_overtaken_for_ever() -> None:
    fleet = crowded()
    assert refused(fleet.ask("other")).reason in (RefusalReason.FULL, RefusalReason.QUEUED)
    fleet.wait(2)
    assert isinstance(fleet.ask("another"), Refusal), "no other sandbox starts on its node"
    fleet.scheduler.ended("s0")
    assert isinstance(fleet.ask("large", size=NODE), Placement)


def test_other_sandboxes_use_the_other_nodes() -> None:
    fleet = crowded(3)
    (dedicated,) = fleet.scheduler.cluster.dedicated
    fleet.wait(2)
    places = [fleet.ask(f"p{number}") for number in range(4)]
    assert all(isinstance(place, Placement) and place.node != dedicated for place in places)


def test_its_client_is_told_to_ask_again_soon() -> None:
    fleet = crowded()
    answer = refused(fleet.ask("large", size=NODE))
    assert answer.retry_after_s is not None and answer.retry_after_s <= 1.0


def test_the_node_where_least_must_end_is_taken() -> None:
    fleet = Fleet(2)
    for number, size in enumerate([HALF, SMALL]):
        request = PlacementRequest(id=f"s{number}", template="t", size=size, deadline_s=LONG_S)
        fleet.scheduler.reconcile(f"n{number}", [ReportedSandbox(request=request, age_s=0.0)])
    wait_for_a_node(fleet, "large")
    assert fleet.scheduler.cluster.dedicated == {"n1": "large"}


def test_a_client_that_does_not_come_back_loses_the_node() -> None:
    fleet = crowded()
    for _ in range(30):
        fleet.wait(1)
    assert isinstance(fleet.ask("other"), Placement)


def test_a_node_that_dies_is_replaced() -> None:
    fleet = crowded(2)
    (dedicated,) = fleet.scheduler.cluster.dedicated
    fleet.scheduler.lose(dedicated, "pulled the plug")
    fleet.wait(1)
    assert list(fleet.scheduler.cluster.dedicated.values()) == ["large"]
    assert dedicated not in fleet.scheduler.cluster.dedicated


def test_a_node_used_by_other_programs_is_given_up() -> None:
    fleet = crowded(2)
    (dedicated,) = fleet.scheduler.cluster.dedicated
    fleet.scheduler.ended(f"s{dedicated.removeprefix('n')}")
    for _ in range(int(RAMP_S) + 3):
        for node in fleet.scheduler.cluster:
            node.measure(Pressure(cpu=0.0, memory=0.5 if node.name == dedicated else 0.0, disk=0.0))
        refused(fleet.ask("large", size=NODE))
        fleet.now += 1
        fleet.scheduler.tick()
    assert list(fleet.scheduler.cluster.dedicated) == [f"n{1 - int(dedicated.removeprefix('n'))}"]


def test_unclaimed_warm_sandboxes_do_not_block_a_node() -> None:
    fleet = filled(Fleet(1, {"other": WarmPool(size=SMALL, ready=4)}))
    kills = 0
    for _ in range(int(AFTER_S) + 10):
        if isinstance(fleet.ask("large", size=NODE), Placement):
            break
        kills += sum(isinstance(action, Kill) for action in fleet.wait(1))
    assert kills == 4 and "large" in fleet.scheduler.cluster.nodes["n0"].reservations


def test_a_snapshot_waits_for_its_own_node() -> None:
    fleet = crowded(2)
    for _ in range(40):
        fleet.wait(1)
    for _ in range(int(AFTER_S) + 5):
        request = PlacementRequest(id="back", template="t", size=NODE, deadline_s=60.0, only_on="n1")
        assert isinstance(fleet.scheduler.place(request), Refusal)
        fleet.wait(1)
    assert fleet.scheduler.cluster.dedicated == {"n1": "back"}
