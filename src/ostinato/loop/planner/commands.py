"""`ostinato plan cluster`: what a cycle takes on machines that need not be there."""

import argparse
import json
from typing import Any

DONE = 0


def register(commands: Any) -> None:
    """Add `cluster` to the commands of `ostinato plan`."""
    parser = commands.add_parser("cluster", help="simulate a cycle on given machines from unit costs")
    parser.add_argument("--model", default="demo", help="demo, demo-quarter or smollm2")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_cluster)


def _cluster(options: argparse.Namespace) -> int:
    from ostinato.loop.planner.costs import PlanError, read_costs
    from ostinato.loop.planner.laptop import predict
    from ostinato.loop.planner.report import laptop_json, print_laptop
    from ostinato.loop.planner.runs import read_runs

    runs, costs = read_runs(), read_costs()
    if options.model not in runs:
        raise PlanError(f"--model is {options.model!r}: there are {', '.join(runs)}")
    run = runs[options.model]
    stages = predict(run, costs)
    if options.json:
        print(json.dumps(laptop_json(run, stages, costs)))  # noqa: T201
    else:
        print_laptop(run, stages, costs)
    return DONE
