"""The promises of the scheduler, event by event.

Covers fleet/scheduler/types.py, fleet/scheduler/node.py, fleet/scheduler/cluster.py, fleet/scheduler/cost.py,
fleet/scheduler/start_health.py, fleet/scheduler/wait_queue.py and fleet/scheduler/warm_pool.py.
"""

import random
from collections.abc import Mapping

import pytest

from ostinato.fleet.scheduler.node import Overcommit
from ostinato.fleet.scheduler.scheduler import SILENT_S, START_S, Scheduler
from ostinato.fleet.scheduler.types import (
    SCORING_S,
    Kill,
    Lost,
    Placement,
    PlacementRequest,
    Pressure,
    Refusal,
    RefusalReason,
    ReportedSandbox,
    Size,
    StartKind,
    StartWarm,
)
from ostinato.fleet.scheduler.warm_pool import WarmPool

SMALL = Size(1000, 1024, 1024)
NODE = Size(4000, 4096, 4096)


class Fleet:
    """A scheduler and a clock that stands until the test moves it."""

    def __init__(self, nodes: int = 1, pools: Mapping[str, WarmPool] | None = None, cpu: float = 1.0) -> None:
        self.now = 0.0
        self.scheduler = Scheduler(
            clock=lambda: self.now, chance=random.Random(1), overcommit=Overcommit(cpu=cpu), pools=pools
        )
        for number in range(nodes):
            self.scheduler.join(f"n{number}", NODE)

    def ask(
        self,
        sandbox: str,
        *,
        template: str = "t",
        size: Size = SMALL,
        deadline_s: float = 60.0,
        parent: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Placement | Refusal:
        request = PlacementRequest(
            id=sandbox,
            template=template,
            size=size,
            deadline_s=deadline_s,
            parent=parent,
            labels=labels or {},
        )
        return self.scheduler.place(request)

    def run(self, sandbox: str, **request: object) -> Placement:
        """Ask until there is a place, and start there."""
        for _ in range(200):
            answer = self.ask(sandbox, **request)  # type: ignore[arg-type]
            if isinstance(answer, Placement):
                self.scheduler.started(sandbox, 0.01)
                return answer
            assert answer.retry_after_s is not None
            self.wait(answer.retry_after_s)
        raise AssertionError(f"{sandbox} never got a place")

    def wait(self, seconds: float) -> list[Kill | Lost | StartWarm]:
        """Let time pass while the nodes report that they are idle."""
        self.now += seconds
        for node in list(self.scheduler.cluster):
            node.measure(Pressure(cpu=0.0, memory=0.0, disk=0.0))
        return self.scheduler.tick()


def refused(answer: Placement | Refusal) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


def test_the_same_request_gets_the_same_place() -> None:
    fleet = Fleet()
    assert fleet.ask("a") == fleet.ask("a")
    assert fleet.scheduler.cluster.nodes["n0"].reserved == SMALL


def test_a_sandbox_that_ended_stays_ended() -> None:
    fleet = Fleet()
    fleet.run("a")
    fleet.scheduler.ended("a")
    assert fleet.ask("a") == Refusal(sandbox="a", reason=RefusalReason.ENDED, retry_after_s=None)


def test_a_sandbox_larger_than_every_node_is_refused_for_good() -> None:
    answer = refused(Fleet().ask("a", size=Size(5000, 1, 1)))
    assert answer.reason is RefusalReason.TOO_LARGE and answer.retry_after_s is None


def test_a_full_fleet_says_when_to_come_back_and_keeps_the_order() -> None:
    fleet = Fleet()
    for sandbox in "abcd":
        fleet.run(sandbox)
    first, second = refused(fleet.ask("e")), refused(fleet.ask("f"))
    assert first.reason is RefusalReason.FULL and second.reason is RefusalReason.QUEUED
    assert first.retry_after_s is not None and second.retry_after_s is not None
    fleet.wait(1 + max(first.retry_after_s, second.retry_after_s))
    fleet.scheduler.ended("a")
    assert isinstance(fleet.ask("f"), Refusal), "e came first"
    assert isinstance(fleet.ask("e"), Placement)


def test_a_client_that_does_not_come_back_loses_its_place_in_the_queue() -> None:
    fleet = Fleet()
    for sandbox in "abcd":
        fleet.run(sandbox, deadline_s=1000.0)
    fleet.ask("e")
    fleet.wait(200)
    fleet.scheduler.ended("a")
    assert isinstance(fleet.ask("f"), Placement)


def test_clients_that_withdraw_are_not_waited_for() -> None:
    fleet = Fleet()
    for sandbox in "abcd":
        fleet.run(sandbox, deadline_s=1000.0)
    fleet.ask("e")
    fleet.scheduler.withdraws("e")
    fleet.wait(2)
    fleet.scheduler.ended("a")
    assert isinstance(fleet.ask("f"), Placement)


@pytest.mark.parametrize(
    "pressed",
    [
        Pressure(cpu=0.1, memory=0.96, disk=0.1),
        Pressure(cpu=0.1, memory=0.1, disk=0.96),
        Pressure(cpu=0.1, memory=0.1, disk=0.1, stalls=(0.0, 0.2, 0.0)),
        Pressure(cpu=0.1, memory=0.1, disk=0.1, stalls=(0.0, 0.0, 0.4)),
    ],
)
def test_nothing_is_placed_where_memory_or_disk_run_out(pressed: Pressure) -> None:
    fleet = Fleet()
    fleet.scheduler.measure("n0", pressed)
    assert refused(fleet.ask("a")).reason is RefusalReason.FULL


@pytest.mark.parametrize(
    "pressed", [Pressure(cpu=0.9, memory=0.1, disk=0.1), Pressure(cpu=0.1, memory=0, disk=0, stalls=(0.6,))]
)
def test_a_busy_node_takes_one_sandbox_a_core_if_there_is_no_other(pressed: Pressure) -> None:
    fleet, half = Fleet(2, cpu=4.0), Size(1000, 512, 512)
    fleet.scheduler.measure("n0", pressed)
    assert fleet.run("a", size=half).node == "n1", "an idle node comes first"
    fleet.scheduler.lose("n1", "gone")
    for sandbox in "bcde":
        assert fleet.run(sandbox, size=half).node == "n0"
        fleet.now += 5
        fleet.scheduler.measure("n0", pressed)
    assert isinstance(fleet.ask("f", size=half), Refusal)


def test_memory_that_other_programs_use_is_not_reserved() -> None:
    fleet = Fleet()
    fleet.scheduler.measure("n0", Pressure(cpu=0.0, memory=0.7, disk=0.0))
    assert isinstance(fleet.ask("a"), Placement)
    assert isinstance(fleet.ask("b"), Refusal), "only a quarter and a bit was free"


def test_starts_are_paid_in_cpu_seconds() -> None:
    fleet = Fleet()
    tiny = Size(10, 10, 10)
    fleet.run("a", size=tiny)
    fleet.scheduler.started("a", 1.0)
    placed = 0
    while isinstance(answer := fleet.ask(f"p{placed}", size=tiny), Placement):
        placed += 1
    assert answer.reason is RefusalReason.STARTS and 0 < placed < 200
    fleet.wait(5)
    assert isinstance(fleet.ask(f"p{placed}", size=tiny), Placement)


def test_sandboxes_are_packed_and_prefer_nodes_with_their_template() -> None:
    fleet = Fleet(3)
    home = fleet.run("a", template="x").node
    fleet.run("b", template="y")
    assert {fleet.run(sandbox, template="x").node for sandbox in "cd"} == {home}
    assert len([node for node in fleet.scheduler.cluster if node.reservations]) == 1


def test_a_fork_stays_on_its_parents_node_while_there_is_room_and_moves_then() -> None:
    fleet = Fleet(2)
    home = fleet.run("a").node
    answers = [fleet.run(f"f{number}", parent="a") for number in range(4)]
    assert [answer.kind for answer in answers] == [StartKind.FORK] * 3 + [StartKind.MOVE]
    assert {answer.node for answer in answers[:3]} == {home} and answers[3].node != home
    assert all(answer.source == "a" for answer in answers)
    assert refused(fleet.ask("g", parent="nobody")).reason is RefusalReason.NO_PARENT


def test_a_sandbox_lives_long_enough_to_be_scored() -> None:
    fleet = Fleet()
    fleet.run("a", deadline_s=60.0)
    assert not fleet.wait(60 + SCORING_S - 1)
    assert fleet.wait(2) == [Kill(sandbox="a", node="n0", why="its time is over")]


def test_a_longer_deadline_moves_the_end() -> None:
    fleet = Fleet()
    fleet.run("a", deadline_s=60.0)
    fleet.wait(50)
    assert fleet.scheduler.extend("a", 100.0)
    assert not fleet.wait(90 + SCORING_S)
    assert fleet.wait(20)
    assert not fleet.scheduler.extend("a", 100.0)


def test_a_start_that_never_reports_is_given_up() -> None:
    fleet = Fleet()
    assert isinstance(fleet.ask("a"), Placement)
    fleet.wait(START_S - 1)
    assert [type(action) for action in fleet.wait(2)] == [Kill]
    assert not fleet.scheduler.cluster.nodes["n0"].reservations


def test_a_silent_node_is_lost_and_its_sandboxes_are_reported() -> None:
    fleet = Fleet(2)
    node = fleet.run("a").node
    other = "n1" if node == "n0" else "n0"
    fleet.now += SILENT_S + 1
    fleet.scheduler.measure(other, Pressure(cpu=0, memory=0, disk=0))
    lost = fleet.scheduler.tick()
    assert [(type(each), each.sandbox) for each in lost] == [(Lost, "a")]
    assert fleet.run("b").node == other


def test_sandboxes_of_a_lost_node_that_returns_are_killed() -> None:
    fleet = Fleet()
    fleet.run("a")
    fleet.scheduler.lose("n0", "pulled the plug")
    fleet.scheduler.join("n0", NODE)
    request = PlacementRequest(id="a", template="t", size=SMALL, deadline_s=60.0)
    actions = fleet.scheduler.reconcile("n0", [ReportedSandbox(request=request, age_s=20.0)])
    assert [(type(each), each.sandbox) for each in actions] == [(Kill, "a")]


def test_a_sandbox_that_is_missing_from_the_report_is_lost() -> None:
    fleet = Fleet()
    fleet.run("a")
    fleet.wait(5)
    assert [type(each) for each in fleet.scheduler.reconcile("n0", [])] == [Lost]


def test_a_new_scheduler_takes_over_what_runs() -> None:
    fleet = Fleet()
    request = PlacementRequest(id="a", template="t", size=SMALL, deadline_s=60.0, labels={"run": "7"})
    assert not fleet.scheduler.reconcile("n0", [ReportedSandbox(request=request, age_s=100.0)])
    assert fleet.scheduler.cluster.nodes["n0"].reserved == SMALL
    assert isinstance(fleet.ask("a"), Placement), "known"
    assert fleet.wait(SCORING_S - 39), "its age counts"


def test_a_sweep_ends_what_carries_the_label() -> None:
    fleet = Fleet()
    fleet.run("a", labels={"run": "1"})
    fleet.run("b", labels={"run": "2"})
    assert [kill.sandbox for kill in fleet.scheduler.sweep("run", "1")] == ["a"]
    assert list(fleet.scheduler.cluster.nodes["n0"].reservations) == ["b"]


def test_a_failing_template_is_tried_seldom_and_comes_back() -> None:
    fleet = Fleet()
    for number in range(3):
        assert isinstance(fleet.ask(f"a{number}"), Placement)
        fleet.scheduler.failed(f"a{number}")
    answer = refused(fleet.ask("b"))
    assert answer.reason is RefusalReason.FAILING and answer.retry_after_s is not None
    assert isinstance(fleet.ask("c", template="other"), Placement)
    fleet.wait(answer.retry_after_s)
    assert isinstance(fleet.ask("b"), Placement)
    assert refused(fleet.ask("d")).reason is RefusalReason.FAILING, "one trial at a time"
    fleet.scheduler.started("b", 0.1)
    assert isinstance(fleet.ask("d"), Placement)


def test_a_failed_start_may_be_asked_for_again() -> None:
    fleet = Fleet()
    fleet.ask("a")
    fleet.scheduler.failed("a")
    assert not fleet.scheduler.cluster.nodes["n0"].reservations
    assert isinstance(fleet.ask("a"), Placement)


def test_a_node_where_everything_fails_is_left_alone() -> None:
    fleet = Fleet(2)
    bad = fleet.run("a").node
    fleet.scheduler.cluster.nodes[bad].suspects.clear()
    for number, template in enumerate("uvwxyz"):
        answer = fleet.ask(f"p{number}", template=template)
        assert isinstance(answer, Placement)
        if answer.node != bad:
            break
        fleet.scheduler.failed(f"p{number}")
    else:
        pytest.fail("the bad node was never avoided")


# --- warm pools ---------------------------------------------------------------------------------------------

POOL = {"t": WarmPool(size=SMALL, ready=8)}


def starts(actions: list[Kill | Lost | StartWarm]) -> list[StartWarm]:
    return [action for action in actions if isinstance(action, StartWarm)]


def filled(fleet: Fleet) -> Fleet:
    for _ in range(20):
        for start in starts(fleet.wait(1)):
            fleet.scheduler.started(start.sandbox, 0.01)
    return fleet


def test_a_warm_sandbox_changes_hands() -> None:
    fleet = filled(Fleet(4, POOL))
    before = sum(len(node.reservations) for node in fleet.scheduler.cluster)
    answer = fleet.ask("a")
    assert before == 8 and isinstance(answer, Placement) and answer.kind is StartKind.WARM
    assert answer.source.startswith("warm-")
    node = fleet.scheduler.cluster.nodes[answer.node]
    assert "a" in node.reservations and answer.source not in node.reservations
    assert sum(len(node.reservations) for node in fleet.scheduler.cluster) == 8


def test_a_drained_pool_fills_in_steps() -> None:
    fleet = filled(Fleet(8, POOL))
    for number in range(8):
        fleet.run(f"p{number}")
    first = starts(fleet.wait(1))
    assert len(first) == 2 and not starts(fleet.wait(1)), "two are starting already"


def test_a_failing_pool_is_retried_seldom() -> None:
    fleet = Fleet(8, POOL)
    tried = 0
    for _ in range(600):
        for start in starts(fleet.wait(1)):
            tried += 1
            fleet.scheduler.failed(start.sandbox)
    assert 5 <= tried < 30
    assert not any(node.reservations for node in fleet.scheduler.cluster)


def test_a_pool_yields_to_waiting_clients() -> None:
    fleet = Fleet(1, {"other": WarmPool(size=SMALL, ready=4)})
    for sandbox in "abcd":
        fleet.run(sandbox)
    assert isinstance(fleet.ask("e"), Refusal)
    fleet.scheduler.ended("a")
    assert not starts(fleet.wait(0.1))


def test_a_pool_makes_room_for_waiting_clients() -> None:
    fleet = filled(Fleet(1, {"other": WarmPool(size=SMALL, ready=4)}))
    assert isinstance(fleet.ask("a"), Refusal)
    assert [type(action) for action in fleet.wait(1)] == [Kill]
    assert isinstance(fleet.ask("a"), Placement)


def test_a_request_that_is_not_positive_is_an_error() -> None:
    with pytest.raises(ValueError, match="positive"):
        PlacementRequest(id="a", template="t", size=Size(-1, 0, 0), deadline_s=1.0)
