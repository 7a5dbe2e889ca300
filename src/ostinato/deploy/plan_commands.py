"""`ostinato plan`: the sessions and days that a trial needs; the laboratory simulates a cluster."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.laboratory import laboratory

if TYPE_CHECKING:
    from ostinato.deploy.plan import Prospect, Rung

DONE, WRONG = 0, 2


def register(commands: Any) -> None:
    """Add `plan`, `plan ab` and `plan cluster` to the subparsers of `ostinato`."""
    parser = commands.add_parser("plan")
    group = parser.add_subparsers(required=True, metavar="COMMAND")
    trial = group.add_parser("ab", help="the sessions and days with which an A/B test finds a lift")
    trial.add_argument("--baseline", type=float, required=True, help="the champion's rate of good sessions")
    trial.add_argument(
        "--lift", required=True, help="the rise to find: 0.02 is absolute, 2.28%% is of the baseline"
    )
    trial.add_argument("--users", type=int, default=500, help="the users of both arms together")
    trial.add_argument("--sessions-a-day", type=float, default=3.0, help="the sessions of one user")
    trial.add_argument("--share", type=float, default=0.5, help="the share of users on the challenger")
    trial.add_argument(
        "--correlation", type=float, default=0.2, help="the correlation of two sessions of one user"
    )
    trial.add_argument(
        "--history",
        type=float,
        help="the sessions that each user had before the trial, which takes them out (default: a week's)",
    )
    trial.add_argument(
        "--margin", type=float, default=0.08, help="the loss with people that would be too much, absolute"
    )
    trial.add_argument("--alpha", type=float, default=0.0219, help="the chance of a false promotion")
    trial.add_argument("--power", type=float, default=0.8, help="the chance of finding the lift")
    trial.add_argument("--json", action="store_true", help="print JSON")
    trial.set_defaults(run=_ab)
    _add_cluster(group)


def _add_cluster(commands: Any) -> None:
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
    parser.set_defaults(run=laboratory("planner.command:plan_cluster"))


def _ab(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ostinato.deploy.plan import FOUR_WEEKS, Prospect, ladder, plan

    try:
        prospect = Prospect(
            baseline=options.baseline,
            lift=_lift(options.lift, options.baseline),
            users=options.users,
            sessions_a_day=options.sessions_a_day,
            share=options.share,
            correlation=options.correlation,
            margin=options.margin,
            history=7 * options.sessions_a_day if options.history is None else options.history,
            alpha=options.alpha,
            power=options.power,
        )
    except ValueError as error:
        print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
        return WRONG
    found = plan(prospect)
    rungs = ladder(prospect)
    if options.json:
        print(json.dumps({**asdict(prospect), **asdict(found), "ladder": [asdict(each) for each in rungs]}))  # noqa: T201
        return DONE
    line = f"a lift of {prospect.lift:.4f} on {prospect.baseline:g}, {prospect.users} users"
    line += f" with {prospect.history:g} sessions of history"
    if found.days is not None:
        line += f": {found.days:,} days, {found.sessions:,} sessions, {found.sessions_each:,} of each"
    print(f"{line}. On two arms, {FOUR_WEEKS} days need {found.users_needed:,} users.")  # noqa: T201
    if found.days is None or found.days > FOUR_WEEKS:
        print("\n".join(_told(prospect, rungs)))  # noqa: T201
    return DONE


def _told(prospect: "Prospect", rungs: Sequence["Rung"]) -> Iterable[str]:
    """Yield what a team that is too small for two arms can show, the first claim that works first."""
    works = next((rung for rung in rungs if rung.works), None)
    each = f"{prospect.users} people of {prospect.sessions_a_day:g} sessions a day"
    if works is None:
        yield f"No claim works for {each} in four weeks; what a week shows where they meet both arms:"
    else:
        yield (
            f'What works for {each} is `[live] assign = "block"`, claim `{works.claim}`: {works.days:,} days.'
        )
    for rung in rungs:
        what = (
            "finds a gain of" if rung.claim == "better" else "rules out, if people see no change, a loss of"
        )
        days = "never" if rung.days is None else f"{rung.days:,} days"
        yield f"  {rung.claim}: refutes that {rung.refuted}; a week {what} {rung.in_a_week:.3f}; {days}"


def _lift(text: str, baseline: float) -> float:
    try:
        return float(text[:-1]) / 100 * baseline if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"--lift is {text!r}: write 0.02, or 2.28% of the baseline") from None
