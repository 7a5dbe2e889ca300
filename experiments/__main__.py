"""The command line of the studies: `python -m experiments [NAME …] [--seeds 5] [--plots DIR] [--json]`.

Without a name it lists the studies, the three that train a model and have a command of their own, and the
programs of the laboratory, each with one line and the command that runs it.
"""

import argparse
import ast
from pathlib import Path

from experiments import (
    broken_calls,
    effort,
    hacks,
    k1,
    normalisation,
    questions,
    stale_model,
    staleness,
    summaries,
    trees,
    visible_tests,
)
from experiments.study import as_json, carry_out, draw, show

STUDIES = {
    module.STUDY.name: module.STUDY
    for module in (
        broken_calls,
        questions,
        visible_tests,
        normalisation,
        effort,
        staleness,
        stale_model,
        summaries,
        k1,
        trees,
        hacks,
    )
}
ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "python -m experiments.dialects": "experiments/dialects.py",
    "python -m experiments.retraining": "experiments/retraining.py",
    "python -m experiments.loss_predicts_reward": "experiments/loss_predicts_reward.py",
    "ostinato cycle --simulate week": "lab/ostinato_lab/week/__init__.py",
    "ostinato plan cluster": "lab/ostinato_lab/planner/__init__.py",
    "ostinato bench calibrate MODEL@URL": "lab/ostinato_lab/judges/__init__.py",
}
"""The sources of the programs with a command of their own, whose first line says what they do.

The sources are read and not imported, so that a list needs neither a model nor a plot.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STUDIES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plots", type=Path, help="a folder for one picture a study")
    parser.add_argument("--json", action="store_true", help="print one line of JSON a study as well")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in STUDIES]:
        parser.error(f"there is no study {unknown[0]!r}: the studies are {', '.join(STUDIES)}")
    if not options.names:
        listed = {f"python -m experiments {study.name}": study.question for study in STUDIES.values()}
        for command, source in ELSEWHERE.items():
            docstring = ast.get_docstring(ast.parse((ROOT / source).read_text())) or ""
            listed[command] = docstring.partition("\n")[0]
        for command, line in listed.items():
            print(f"{command:45}{line}")
        return
    for name in options.names:
        study = STUDIES[name]
        results = carry_out(study, range(1, options.seeds + 1))
        show(study, results)
        if options.plots is not None and any(some[0].curves for some in results.values()):
            draw(study, results, options.plots / f"{name}.png")
        if options.json:
            print(as_json(study, results))
        print()


if __name__ == "__main__":
    main()
