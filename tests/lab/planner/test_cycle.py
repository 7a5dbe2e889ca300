"""The cycle of a cluster. Covers planner/cluster.py, planner/published.py,
planner/sensitivity.py."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato_lab.planner.cluster import ClusterPlan
from ostinato_lab.planner.costs import PlanError, read_costs
from ostinato_lab.planner.cycle import Simulated, simulate
from ostinato_lab.planner.hardware import PlannedModel, ServedRegion, read_gpus, read_model, read_regions
from ostinato_lab.planner.published import compare
from ostinato_lab.planner.report import draw
from ostinato_lab.planner.sensitivity import sensitivity

COSTS = read_costs()
PLAN = ClusterPlan(
    model=read_model("1T-moe"),
    kind=read_gpus("h100:512")[0],
    trainers=384,
    engines=128,
    regions=read_regions("us:100,eu:40,ap:40"),
    sandboxes=20_000,
    traffic=1e6,
    costs=COSTS,
)
FREE = replace(COSTS, rows={name: replace(row, value=0.0) for name, row in COSTS.rows.items()})
KEPT = (
    "train_share",
    "train_flops",
    "read_share",
    "decode_share",
    "memory_share",
    "serving_share",
    "token_s",
)


def tiny(**values: float) -> ClusterPlan:
    """Return a plan in which only the given costs, and what rates need, are above 0."""
    values = {name: COSTS[f"cluster.{name}"] for name in KEPT} | values
    values |= {
        name: 1e30
        for name in ("encode_bytes", "decode_bytes", "load_bytes", "bucket_bytes")
        if name not in values
    }
    values = {"codec_cores": 1.0, "canary_share": 1.0, "read_tokens": 1.0, "sampled_tokens": 1.0, **values}
    rows = {
        f"cluster.{name}": replace(COSTS.rows[f"cluster.{name}"], value=value)
        for name, value in values.items()
    }
    model = PlannedModel(name="tiny", weights=1e9, active=1e9, serving_bytes=2.0)
    regions = (ServedRegion(name="near", bytes_per_s=1e9), ServedRegion(name="far", bytes_per_s=1e8))
    return replace(PLAN, model=model, regions=regions, costs=replace(FREE, rows=FREE.rows | rows))


def test_the_waits_of_a_release_by_hand() -> None:
    """86,400 sessions a day are one a second: 60 s and 100 s of canary, 40 s and 100 s of split."""
    plan = replace(tiny(canary_sessions=60, split_sessions=40, maturity_s=100), traffic=86_400)
    phases = simulate(plan).trial_s()
    assert phases["canary"] == pytest.approx(160.0)
    assert phases["split"] == pytest.approx(140.0)


def test_a_step_and_a_version_by_hand() -> None:
    """Two steps of 30 s, nothing to sample; 1e9 bytes take 1 s to the near region, 10 s to the far one."""
    found = simulate(tiny(steps=2, step_fixed_s=30, delta_bytes=1.0, bucket_bytes=0.5e9, swap_fixed_s=3))
    assert found.phase_s()["practice"] == pytest.approx(60.0)
    assert found.published_s[0] == pytest.approx(2.0 + 10.0 + 3.0)
    assert found.received == {"near": 3e9, "far": 3e9}


@pytest.fixture(scope="module")
def week() -> Simulated:
    return simulate(PLAN, cycles=10, every_s=5 * 3600)


def test_what_leaves_the_bucket_arrives_in_every_region(week: Simulated) -> None:
    anchors = week.versions // 25 * 2 * PLAN.model.weights
    assert week.versions == 70
    for name in ("us", "eu", "ap"):
        assert week.received[name] == pytest.approx(week.versions * PLAN.delta())
        assert week.sent == pytest.approx(week.received[name] + anchors)


def test_phases_follow_one_another_and_fill_the_cycle(week: Simulated) -> None:
    assert sum(week.phase_s().values()) == pytest.approx(week.cycle_s())
    assert all(0 <= share <= 1 for share in week.idle.values())
    assert week.most_pods <= PLAN.sandboxes


def test_a_trial_goes_on_beside_the_next_cycles_and_the_newest_candidate_is_tried_next(
    week: Simulated,
) -> None:
    trials = [span for span in week.spans if span.name == "trial"]
    cycles = {span.cycle: span for span in week.spans if span.name == "cycle"}
    assert len(trials) >= 2 and trials[0].end > cycles[1].start
    for before, trial in pairwise(trials):
        assert trial.start >= before.end
        ended = [number for number, span in cycles.items() if span.end <= trial.start]
        assert trial.cycle == max(ended)


def test_cycles_begin_no_sooner_than_asked() -> None:
    found = simulate(PLAN, cycles=3, every_s=10 * 3600)
    starts = [span.start for span in found.spans if span.name == "cycle"]
    assert [b - a for a, b in pairwise(starts)] == pytest.approx([36_000.0] * 2)


@given(st.floats(1.0, 8.0))
def test_more_of_anything_is_never_slower(factor: float) -> None:
    now = simulate(PLAN)
    regions = tuple(replace(r, bytes_per_s=r.bytes_per_s * factor) for r in PLAN.regions)
    for more in (
        replace(PLAN, trainers=PLAN.trainers * factor),
        replace(PLAN, sandboxes=PLAN.sandboxes * factor),
        replace(PLAN, regions=regions),
    ):
        # Trials beside the cycles share the machines: a little more of one can move a wait (Graham 1969).
        assert simulate(more).cycle_s() <= now.cycle_s() * 1.02
    assert max(simulate(replace(PLAN, regions=regions)).published_s) <= max(now.published_s) * (1 + 1e-9)


def test_a_cluster_that_cannot_hold_the_model_is_refused_with_both_sizes() -> None:
    with pytest.raises(PlanError, match=r"18\.7 TB to train, and 128 h100 have 8\.2 TB.*293 trainers"):
        simulate(replace(PLAN, trainers=128))
    with pytest.raises(PlanError, match=r"1\.04 TB to serve, 32 h100: there are 8 with 0\.51 TB"):
        simulate(replace(PLAN, engines=24))
    with pytest.raises(PlanError, match=r"100,000,000 sessions a day"):
        simulate(replace(PLAN, traffic=1e8))


def test_one_change_is_found_and_a_refused_one_is_none() -> None:
    effects = {effect.name: effect for effect in sensitivity(PLAN)}
    assert effects["trainers"].halved_s is None
    doubled = effects["cluster.maturity_s"].doubled_s
    assert doubled is not None and doubled > effects["cluster.maturity_s"].now_s - 60  # no cycle waits for it
    assert effects["cluster.encode_bytes"].gain_s < 60


def test_published_figures_stand_beside_the_computed_ones(week: Simulated) -> None:
    computed = {each.what: each.computed for each in compare(PLAN, week)}
    assert computed["delta of a version"] == "9.7 GB"
    assert computed["pause of an engine at a swap"] == "2.3 s"


def test_a_week_is_drawn_and_the_same_one_is_the_same_file(tmp_path: Path, week: Simulated) -> None:
    for name in ("a.svg", "b.svg"):
        draw(week, tmp_path / name, "a week")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(PlanError, match=r"\.svg"):
        draw(week, tmp_path / "a.txt", "a week")
