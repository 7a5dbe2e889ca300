"""Runs on one machine. Covers planner/runs.py: the counts are those of the files that ship."""

from dataclasses import replace
from pathlib import Path

import pytest

from ostinato import config
from ostinato.demo import commands as demo
from ostinato.loop.config import RunConfig
from ostinato_lab.planner.costs import Costs, read_costs
from ostinato_lab.planner.laptop import predict
from ostinato_lab.planner.runs import LaptopRun, SessionSize, read_runs

RUNS, COSTS = read_runs(), read_costs()
ROOT = Path(__file__).parents[3]
FILES = {"demo": Path(demo.__file__).with_name("demo.toml"), "smollm2": ROOT / "recipes" / "real.toml"}
NOTHING = SessionSize(turns=1, sampled=0, read=0, shared=0)
EMPTY = replace(
    RUNS["demo"], lesson=NOTHING, sessions=NOTHING, sft_steps=0, held_out=0, versions=0, live_sessions=0
)


def costs(**values: float) -> Costs:
    """Return the demo's costs with every figure 0 but those given."""
    rows = {name: replace(row, value=0.0) for name, row in COSTS.rows.items()}
    return Costs(rows | {name: replace(rows[name], value=v) for name, v in values.items()})


@pytest.mark.parametrize("name", FILES)
def test_the_counts_are_those_of_the_run_s_file(name: str) -> None:
    file, run = config.load(RunConfig, FILES[name]), RUNS[name]
    assert (run.lessons, run.sft_steps, run.sft_rows) == (
        file.teach.lessons * file.teach.demonstrations,
        file.teach.steps,
        file.teach.sft.batch,
    )
    assert run.held_out == sum(file.tasks.held_out.values())
    assert (run.bench_at_once, run.passes) == (file.bench.at_once, file.bench.passes)
    assert (run.versions, run.groups, run.staleness) == (
        file.refine.versions,
        file.refine.groups,
        file.refine.staleness,
    )
    practice = file.practice
    assert (run.group_size, run.groups_at_once, run.ready_ahead) == (
        practice.group_size,
        practice.groups_at_once,
        practice.ready_ahead,
    )
    if run.live_sessions:
        live = file.live
        assert (run.live_sessions, run.developers, run.live_versions, run.shadow_requests) == (
            live.sessions,
            live.developers,
            live.versions,
            live.shadow_requests,
        )
        assert run.released_sessions == live.ab_sessions + live.canary_sessions


def test_a_benchmark_by_hand() -> None:
    """Four sessions, two at once, on one thread for the agents: 3 s of start, then 4 · 2 s of agents."""
    run = replace(EMPTY, held_out=4, bench_at_once=2, passes=0)
    given = costs(**{"demo.start_s": 3.0, "laptop.agent_turn_s": 2.0})
    before = next(stage for stage in predict(run, given) if stage.name == "before")
    assert (before.wall_s, before.cpu_s) == (pytest.approx(11.0), pytest.approx(11.0))


def test_practice_by_hand() -> None:
    """One group of two a version, trained while the next is sampled: 2 s of agents, then 3 · 5 s of steps."""
    run = replace(
        EMPTY,
        versions=3,
        groups=1,
        group_size=2,
        groups_at_once=1,
        ready_ahead=1,
        staleness=1,
    )
    given = costs(**{"laptop.agent_turn_s": 1.0, "demo.optimizer_s": 5.0})
    (practice,) = predict(run, given)
    assert (practice.name, practice.wall_s, practice.cpu_s) == (
        "practice",
        pytest.approx(17.0),
        pytest.approx(21.0),
    )


def test_a_run_on_nodes_by_hand() -> None:
    """Three nodes on two cores: 4 s of Ray's client, 3 · 2 s of actors, and 0.1 core for each node."""
    run = replace(EMPTY, nodes=3)
    given = costs(**{"ray.client_s": 4.0, "ray.actor_s": 2.0, "ray.node_share": 0.1})
    (join,) = predict(run, given)
    assert (join.name, join.wall_s, join.cpu_s) == ("join", pytest.approx(7.0), pytest.approx(10.0 + 3 * 0.7))
    assert "join" not in [stage.name for stage in predict(RUNS["demo-quarter"], COSTS)]


def test_a_run_like_another_has_its_counts() -> None:
    run = RUNS["demo-quarter-ray"]
    assert replace(run, name="demo-quarter", nodes=0) == RUNS["demo-quarter"]
    assert run.nodes == 3


def test_a_decode_step_is_cheaper_a_token_in_a_batch() -> None:
    facts = replace(NOTHING, sampled=100)

    def engine_s(at_once: int) -> float:
        run: LaptopRun = replace(EMPTY, sessions=facts, held_out=8, bench_at_once=at_once, passes=0)
        return predict(run, costs(**{"demo.decode_step_s": 1e-2}))[0].cpu_s

    assert engine_s(1) == pytest.approx(8.0)
    assert engine_s(8) < 4.0


@pytest.mark.parametrize("name", ["demo-quarter", "smollm2"])
def test_more_cores_are_never_slower(name: str) -> None:
    two, four = (sum(s.wall_s for s in predict(replace(RUNS[name], cores=c), COSTS)) for c in (2, 4))
    assert four <= two * 1.001
