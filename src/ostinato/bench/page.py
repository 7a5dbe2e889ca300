"""The figures of a suite as people read them: a table of text, and one self-contained page of HTML."""

import base64
import html
import io
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from ostinato.bench.compare import SOLVED, Bounded, Contrast, SuiteFigures

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;"
    "text-align:right}td:first-child,th:first-child{text-align:left}img{max-width:100%}"
)
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def tables(figures: SuiteFigures) -> Iterator[Table]:
    """Yield title, header and rows: solving, each axis, and each comparison. Axes are never summed up."""
    yield (
        "Solved",
        ("side", "passes", "mean", *(f"best of {k}" for k in _ks(figures))),
        [
            (
                side.name,
                f"{side.passes:,}",
                _text(side.solve),
                *(_text(side.best_of.get(k)) for k in _ks(figures)),
            )
            for side in figures.sides
        ],
    )
    splits = sorted({split for side in figures.sides for split in side.splits})
    if len(splits) > 1:
        yield (
            "Solved by split",
            ("side", *splits),
            [(side.name, *(_text(side.splits.get(split)) for split in splits)) for side in figures.sides],
        )
    for axis in sorted({axis for side in figures.sides for axis in side.axes}):
        measures = sorted({name for side in figures.sides for name in side.axes.get(axis, {})})
        yield (
            f"Axis: {axis}",
            ("measure", *(side.name for side in figures.sides)),
            [
                (name, *(_text(side.axes.get(axis, {}).get(name)) for side in figures.sides))
                for name in measures
            ],
        )
    for what, changes in figures.changes.items():
        header = ("measure", "difference", "p", "after Holm", "detectable at 80 %", "tasks")
        yield what, header, [_row(name, change) for name, change in changes.items()]


def text(figures: SuiteFigures) -> str:
    """Return all tables as plain text."""
    lines = [heading(figures)]
    for title, header, rows in tables(figures):
        lines += ["", title, *aligned((header, *rows))]
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of plain text, the first column to the left and the others to the right.

    >>> aligned([("model", "loss"), ("a", "0.5")])
    ['model  loss', 'a       0.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def heading(figures: SuiteFigures) -> str:
    """Return one line on the suite."""
    return (
        f"{figures.suite} (hash {figures.hash}): {figures.tasks} tasks of "
        f"{figures.repositories} repositories, {figures.passes} passes"
    )


def page(figures: SuiteFigures) -> str:
    """Return the page, with its plots inside it where matplotlib is installed."""
    parts = [f"<h1>{html.escape(figures.suite)}</h1>", f"<p>{html.escape(heading(figures))}.</p>"]
    if find_spec("matplotlib") is not None:
        encoded = base64.b64encode(plot(figures)).decode()
        parts.append(f'<img alt="solved and tokens" src="data:image/png;base64,{encoded}">')
    for title, header, rows in tables(figures):
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        parts.append(f"<h2>{html.escape(title)}</h2><table><tr>{head}</tr>{body}</table>")
    parts.append(
        "<p>Intervals are 95 %, clustered by repository. Fewer than four repositories, or values that are "
        "all the same, are too few to tell one. An unknown measure is missing, not zero.</p>"
    )
    title = html.escape(figures.suite)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style>{''.join(parts)}</html>\n"
    )


def plot(figures: SuiteFigures) -> bytes:
    """Return a PNG: best of K with intervals, and mean against tokens where tokens are known."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.use("Agg")
    figure = Figure(figsize=(9, 3.4), layout="tight")
    best, cost = figure.subplots(1, 2)
    for side in figures.sides:
        ks = sorted(side.best_of)
        best.plot(ks, [side.best_of[k].value for k in ks], marker="o", label=side.name[:40])
        if bands := [(k, of.low, of.high) for k, of in sorted(side.best_of.items()) if of.low is not None]:
            best.fill_between(*map(list, zip(*bands, strict=True)), alpha=0.15)
        tokens = side.axes.get("efficiency", {}).get("tokens_out")
        if tokens is not None and side.solve is not None:
            cost.errorbar([tokens.value], [side.solve.value], yerr=_error(side.solve), fmt="o", capsize=3)
    best.set(xlabel="best of K passes", ylabel="solved", ylim=(0, 1))
    cost.set(xlabel="tokens sampled by pass", ylabel="solved", ylim=(0, 1))
    if figures.sides:
        best.legend(fontsize=7)
    for axes in (best, cost):
        axes.grid(alpha=0.3)
    written = io.BytesIO()
    figure.savefig(written, dpi=110, format="png")
    return written.getvalue()


def _error(finding: Bounded) -> list[list[float]] | None:
    if finding.low is None or finding.high is None:
        return None
    return [[finding.value - finding.low], [finding.high - finding.value]]


def _ks(figures: SuiteFigures) -> Sequence[int]:
    return sorted({k for side in figures.sides for k in side.best_of} - {1})


def _text(finding: Bounded | None) -> str:
    return "missing" if finding is None else finding.text


def _row(name: str, change: Contrast) -> tuple[str, ...]:
    shown = "solved (decides)" if name == SOLVED else name
    holds = "differs" if change.holds else "—"
    return (
        shown,
        change.finding.text,
        f"{change.p:.4f}" if change.finding.low is not None else "—",
        holds,
        "nothing" if change.detectable is None else f"{change.detectable:.3f}",
        str(change.finding.tasks),
    )
