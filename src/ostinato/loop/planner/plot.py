"""A week as a picture: what each cycle spends its time on."""

from pathlib import Path

from ostinato.loop.planner.costs import PlanError
from ostinato.loop.planner.cycle import PHASES, Simulated

FORMATS = (".svg", ".png", ".pdf")


def draw(found: Simulated, path: Path, title: str) -> None:
    """Draw every cycle as a row of phases. Raises PlanError without matplotlib or a known suffix."""
    if path.suffix not in FORMATS:
        raise PlanError(f"--plot {path}: the name ends in one of {', '.join(FORMATS)}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PlanError("--plot needs matplotlib: pip install 'ostinato[demo]'") from error
    mpl.rcParams["svg.hashsalt"] = "plan"  # the same plan is the same file
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5))
    axes = figure.subplots()
    for number, phase in enumerate(PHASES):
        spans = [span for span in found.spans if span.name == phase]
        axes.barh(
            [span.cycle + 1 for span in spans],
            [span.seconds / 3600 for span in spans],
            left=[span.start / 3600 for span in spans],
            color=f"C{number}",
            label=phase,
        )
    axes.set(xlabel="hours", ylabel="cycle", title=title)
    axes.invert_yaxis()
    axes.legend(fontsize=8, loc="lower left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
