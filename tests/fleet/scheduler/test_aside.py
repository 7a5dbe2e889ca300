"""Whoever has waited too long gets a node, and nobody else comes to it."""

from tests.fleet.scheduler.test_scheduler import NODE, SMALL, Fleet, filled, refused

from ostinato.fleet.scheduler.aside import AFTER_S
from ostinato.fleet.scheduler.node import RAMP_S
from ostinato.fleet.scheduler.pod import Kill, Placed, Pressure, Reason, Refused, Request, Running, Size
from ostinato.fleet.scheduler.pool import Pool

HALF = Size(2000, 2048, 2048)
LONG_S = 10_000.0


def crowded(nodes: int = 1) -> Fleet:
    """A small pod on every node, and one that wants a whole node and has come back often enough."""
    fleet = Fleet(nodes)
    for number in range(nodes):
        request = Request(id=f"s{number}", template="t", size=SMALL, deadline_s=LONG_S)
        fleet.scheduler.hear(f"n{number}", [Running(request=request, age_s=0.0)])
    wait_for_a_node(fleet, "large")
    return fleet


def wait_for_a_node(fleet: Fleet, pod: str, size: Size = NODE) -> None:
    begun = fleet.now
    while fleet.now < begun + AFTER_S + 5:
        refused(fleet.ask(pod, size=size))
        fleet.wait(1)


def test_a_large_pod_is_not_overtaken_for_ever() -> None:
    fleet = crowded()
    assert refused(fleet.ask("other")).reason in (Reason.FULL, Reason.LINE)
    fleet.wait(2)
    assert isinstance(fleet.ask("another"), Refused), "nobody else comes to its node"
    fleet.scheduler.ended("s0")
    assert isinstance(fleet.ask("large", size=NODE), Placed)


def test_others_have_the_other_nodes() -> None:
    fleet = crowded(3)
    (kept,) = fleet.scheduler.cluster.aside
    fleet.wait(2)
    places = [fleet.ask(f"p{number}") for number in range(4)]
    assert all(isinstance(place, Placed) and place.node != kept for place in places)


def test_it_is_told_to_come_soon() -> None:
    fleet = crowded()
    answer = refused(fleet.ask("large", size=NODE))
    assert answer.retry_after_s is not None and answer.retry_after_s <= 1.0


def test_the_node_where_least_must_end_is_taken() -> None:
    fleet = Fleet(2)
    for number, size in enumerate([HALF, SMALL]):
        request = Request(id=f"s{number}", template="t", size=size, deadline_s=LONG_S)
        fleet.scheduler.hear(f"n{number}", [Running(request=request, age_s=0.0)])
    wait_for_a_node(fleet, "large")
    assert fleet.scheduler.cluster.aside == {"n1": "large"}


def test_whoever_does_not_come_back_gives_the_node_up() -> None:
    fleet = crowded()
    for _ in range(30):
        fleet.wait(1)
    assert isinstance(fleet.ask("other"), Placed)


def test_a_node_that_dies_is_replaced() -> None:
    fleet = crowded(2)
    (kept,) = fleet.scheduler.cluster.aside
    fleet.scheduler.lose(kept, "pulled the plug")
    fleet.wait(1)
    assert list(fleet.scheduler.cluster.aside.values()) == ["large"]
    assert kept not in fleet.scheduler.cluster.aside


def test_what_others_use_of_an_empty_node_is_not_waited_for() -> None:
    fleet = crowded(2)
    (kept,) = fleet.scheduler.cluster.aside
    fleet.scheduler.ended(f"s{kept.removeprefix('n')}")
    for _ in range(int(RAMP_S) + 3):
        for node in fleet.scheduler.cluster:
            node.measure(Pressure(cpu=0.0, memory=0.5 if node.name == kept else 0.0, disk=0.0))
        refused(fleet.ask("large", size=NODE))
        fleet.now += 1
        fleet.scheduler.tick()
    assert list(fleet.scheduler.cluster.aside) == [f"n{1 - int(kept.removeprefix('n'))}"]


def test_pods_that_nobody_took_do_not_hold_a_node_up() -> None:
    fleet = filled(Fleet(1, {"other": Pool(size=SMALL, ready=4)}))
    kills = 0
    for _ in range(int(AFTER_S) + 10):
        if isinstance(fleet.ask("large", size=NODE), Placed):
            break
        kills += sum(isinstance(action, Kill) for action in fleet.wait(1))
    assert kills == 4 and "large" in fleet.scheduler.cluster.nodes["n0"].pods


def test_a_snapshot_waits_for_its_own_node() -> None:
    fleet = crowded(2)
    for _ in range(40):
        fleet.wait(1)
    for _ in range(int(AFTER_S) + 5):
        wish = Request(id="back", template="t", size=NODE, deadline_s=60.0, only_on="n1")
        assert isinstance(fleet.scheduler.place(wish), Refused)
        fleet.wait(1)
    assert fleet.scheduler.cluster.aside == {"n1": "back"}
