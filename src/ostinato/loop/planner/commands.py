"""`ostinato plan cluster`: what a cycle takes on machines that need not be there."""

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any

DONE = 0
WEEK_S = 7 * 86_400.0


def register(commands: Any) -> None:
    """Add `cluster` to the commands of `ostinato plan`."""
    parser = commands.add_parser("cluster", help="simulate a cycle on given machines from unit costs")
    parser.add_argument(
        "--model",
        default="1T-moe",
        help="1T-moe, 235B-moe, demo, demo-quarter, demo-quarter-ray, smollm2 or a TOML file",
    )
    parser.add_argument("--gpus", default="h100:512", help="kind and number, as h100:512")
    parser.add_argument("--trainers", type=float, default=0.75, help="the share of GPUs that trains")
    parser.add_argument("--regions", default="us:100,eu:40,ap:40", help="names, with Gbit/s from the bucket")
    parser.add_argument("--sandboxes", type=float, default=20_000, help="places for sandboxes")
    parser.add_argument("--traffic", type=float, default=1e6, help="live sessions a day")
    parser.add_argument("--cycle", default="5h", help="the least time between the starts of cycles: 5h, 90m")
    parser.add_argument("--price", type=float, help="the price of a GPU-hour, in any money")
    parser.add_argument("--plot", type=Path, help="draw a week into this file (.svg, .png, .pdf)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_cluster)


def _cluster(options: argparse.Namespace) -> int:
    from ostinato.loop.planner.costs import read_costs
    from ostinato.loop.planner.laptop import predict
    from ostinato.loop.planner.report import laptop_json, print_laptop
    from ostinato.loop.planner.runs import read_runs

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
    from ostinato.loop.planner.cycle import simulate
    from ostinato.loop.planner.plot import draw
    from ostinato.loop.planner.report import cluster_json, print_cluster
    from ostinato.loop.planner.sensitivity import sensitivity

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


def _plan(options: argparse.Namespace) -> Any:
    from ostinato.loop.planner.cluster import ClusterPlan
    from ostinato.loop.planner.costs import PlanError, read_costs
    from ostinato.loop.planner.hardware import read_gpus, read_model, read_regions

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
    from ostinato.loop.planner.costs import PlanError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text)
    if found is None:
        raise PlanError(f"--cycle is {text!r}: write 5h, 90m or 30s")
    return float(found[1]) * {"h": 3600.0, "m": 60.0, "s": 1.0}[found[2]]
