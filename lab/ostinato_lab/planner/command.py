"""`ostinato plan cluster`: what a cycle takes on machines that need not be there."""

import argparse
import json
import math
import re

from ostinato_lab.planner.cluster import ClusterPlan
from ostinato_lab.planner.costs import PlanError, read_costs
from ostinato_lab.planner.cycle import simulate
from ostinato_lab.planner.hardware import read_gpus, read_model, read_regions
from ostinato_lab.planner.laptop import predict
from ostinato_lab.planner.report import cluster_json, draw, laptop_json, print_cluster, print_laptop
from ostinato_lab.planner.runs import read_runs
from ostinato_lab.planner.sensitivity import sensitivity

DONE = 0
WEEK_S = 7 * 86_400.0


def plan_cluster(options: argparse.Namespace) -> int:
    """Predict a run on one machine, or simulate a week of a cluster, and print what came out."""
    runs, costs = read_runs(), read_costs()
    if options.model not in runs:
        return _week(options)
    run = runs[options.model]
    stages = predict(run, costs)
    if options.json:
        print(json.dumps(laptop_json(run, stages, costs)))  # noqa: T201
    else:
        print_laptop(run, stages, costs)
    return DONE


def _week(options: argparse.Namespace) -> int:
    """Simulate a cycle to find its length, and then as many as a week holds."""
    plan, every_s = _plan(options), _seconds(options.cycle)
    one = max(simulate(plan).cycle_s(), every_s)
    found = simulate(plan, cycles=math.ceil(WEEK_S / one), every_s=every_s)
    effects = sensitivity(plan)
    if options.plot is not None:
        draw(found, options.plot, f"{plan.model.name} on {options.gpus}: a week")
    if options.json:
        print(json.dumps(cluster_json(plan, found, effects, options.price)))  # noqa: T201
    else:
        print_cluster(plan, found, effects, options.price)
    return DONE


def _plan(options: argparse.Namespace) -> ClusterPlan:
    kind, count = read_gpus(options.gpus)
    if not 0 < options.trainers < 1 or not options.sandboxes >= 1 or not options.traffic > 0:
        raise PlanError("--trainers lies between 0 and 1, --sandboxes is 1 at least, --traffic is above 0")
    trainers = round(count * options.trainers)
    return ClusterPlan(
        model=read_model(options.model),
        kind=kind,
        trainers=trainers,
        engines=count - trainers,
        regions=read_regions(options.regions),
        sandboxes=options.sandboxes,
        traffic=options.traffic,
        costs=read_costs(),
    )


def _seconds(text: str) -> float:
    """Return the seconds of `5h`, `90m` or `30s`. Raises PlanError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text)
    if found is None:
        raise PlanError(f"--cycle is {text!r}: write 5h, 90m or 30s")
    return float(found[1]) * {"h": 3600.0, "m": 60.0, "s": 1.0}[found[2]]
