"""The command line of the studies: `python -m experiments [NAME …] [--seeds 5] [--plots DIR] [--json]`."""

import argparse
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
        for study in STUDIES.values():
            print(f"{study.name:16}{study.question}")
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
