"""Secrets planted in real source, and alarms where nothing was planted, beside detect-secrets.

    python -m benchmarks.redaction [--planted 1200] [--lines 120000] [--peer DIRECTORY | --no-peer] [--json]

Planted are the secrets of `fuzz/planted_secrets.py`, between lines of real source. The hardest stand alone in
no vendor's form, `nothing but chance`: commit ids look the same. *New forms* are those of
`fuzz/secret_shapes.py`, each with its own recall. The rules were mended after the first run on them (0.959 of
all), so they are no longer forms that nobody thought of. A secret counts as found when redaction leaves at
most three characters of it, or for detect-secrets when it names the line. Recall has its 95 % Wilson
interval.

False alarms are lines in which something is found, per 1000 lines of the standard library and of the
installed packages (Python, and in a row of its own their other text: documents, JSON, settings, C, scripts).
Each counts as false, an example key in a manual included. The interval is that of a bootstrap over files. The
peer (`pip install detect-secrets` into a virtual environment of its own, at --peer or in a temporary place)
reads the same files with its default plugins and filters.

*Slow lines* were made to be slow: the table shows CPU seconds per MB, and the ratio of time for twice the
text.
"""

import argparse
import json
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from fuzz.planted_secrets import Planted, plant, removed
from fuzz.secret_shapes import SHAPES, Drawn, draw

from benchmarks.measure import Figure, Run, table
from ostinato.store.redaction.find import find

PEER = """
import json, sys
from detect_secrets import SecretsCollection
from detect_secrets.settings import default_settings
found = {}
with default_settings():
    for path in sys.stdin.read().split("\\n"):
        collection = SecretsCollection()
        collection.scan_file(path)
        found[path] = sorted({secret.line_number for _, secret in collection})
print(json.dumps(found))
"""
PEER_NAME = "detect-secrets"
ALARMS = "false alarms per 1000 lines"
TEXTS = (
    ".md", ".rst", ".txt", ".json", ".toml", ".cfg", ".ini", ".yaml", ".yml", ".c", ".h", ".js", ".sh",
    ".xml",
)  # fmt: skip
SLOW = (
    "token=Abcdefg!, ",
    "password=",
    "key: |\n",
    "eyJ-",
    "eyJa.",
    "://a:b1",
    "curl -u a:",
    "QUJD",
    '"aA1',
    "AKIA ",
)
"""The repeated units of lines that were made to be slow."""


def sources(
    roots: Sequence[Path], lines: int, rng: random.Random, endings: Sequence[str] = (".py",)
) -> dict[Path, list[str]]:
    """Return files below `roots` with these endings, in turns, up to `lines` lines."""
    every = {root: (p for p in root.rglob("*.*") if p.suffix in endings) for root in roots}
    files = {root: sorted(p for p in paths if _is_source(p, root)) for root, paths in every.items()}
    taken: dict[Path, list[str]] = {}
    for paths in files.values():
        rng.shuffle(paths)
    total, turns = 0, list(files.values())
    while total < lines and any(turns):
        paths = min((each for each in turns if each), key=lambda each: -len(each))
        path = paths.pop()
        taken[path] = path.read_text(errors="replace").split("\n")
        total += len(taken[path])
    return taken


def _is_source(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return (
        not {"site-packages", "__pycache__", "tests", "test", "ostinato"} & set(parts)
        and path.stat().st_size < 10**6
    )


def flagged(text: str) -> list[int]:
    """Return the numbers of the lines, from 1, in which ostinato finds something."""
    return sorted({text.count("\n", 0, secret.start) + 1 for secret in find(text)})


def alarming(lines: Sequence[str]) -> list[str]:
    """Return the lines of a file that alarm, with what was found in them."""
    text = "\n".join(lines)
    return [
        f"alarm {s.kind}: {text[s.start : s.end]!r:.60} in {lines[text.count(chr(10), 0, s.start)]:.100}"
        for s in find(text)
    ]


def peer_lines(python: Path, paths: Sequence[Path]) -> dict[str, list[int]]:
    done = subprocess.run(
        [python, "-c", PEER], input="\n".join(map(str, paths)), capture_output=True, text=True, check=True
    )
    lines: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return lines


def make_peer(directory: Path) -> Path | None:
    """Return the Python of an environment with detect-secrets; None where it cannot be installed."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "detect-secrets"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        print(
            f"without the peer, it cannot be installed: {done.stderr.strip().splitlines()[-1]}",
            file=sys.stderr,
        )
        return None
    return python


def wilson(hits: int, n: int) -> Figure:
    """Return a proportion with its 95 % Wilson score interval."""
    z, p = 1.959964, hits / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low, high = max(0.0, float((middle - half) / scale)), min(1.0, float((middle + half) / scale))
    return Figure(value=p, low=low, high=high, n=n, confidence=0.95)


def rate(alarms: Sequence[int], lines: Sequence[int], draws: int = 2000) -> Figure:
    """Return the alarms per 1000 lines, with the bootstrap interval over files."""
    a, n = np.array(alarms), np.array(lines)
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(a), (draws, len(a)))
    drawn = 1000 * a[picks].sum(1) / n[picks].sum(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = float(1000 * a.sum() / n.sum())
    return Figure(value=value, low=float(low), high=float(high), n=int(n.sum()), confidence=0.95)


def hosts(planted: Sequence[Planted], source: dict[Path, list[str]], rng: random.Random) -> list[str]:
    """Return for each secret its line with three lines of source before and after it."""
    files = [lines for lines in source.values() if len(lines) > 40]
    texts = []
    for each in planted:
        lines = rng.choice(files)
        at = rng.randrange(3, len(lines) - 3)
        texts.append("\n".join([*lines[at - 3 : at], each.line, *lines[at : at + 3]]))
    return texts


def write_all(directory: Path, texts: Sequence[str]) -> list[Path]:
    paths = [directory / f"{i}.py" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, errors="replace")
    return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one scanner: which planted secrets it found, and its alarms in each file of source."""

    hits: list[bool]
    alarms: list[int]

    def figures(self, planted: Sequence[Planted], lines: Sequence[int]) -> dict[str, Figure]:
        recall = {f"recall, {name}": each for name, each in by_family(planted, self.hits).items()}
        return {**recall, ALARMS: rate(self.alarms, lines)}


def by_family(planted: Sequence[Planted], hits_of: Sequence[bool]) -> dict[str, Figure]:
    hits: dict[str, Counter[bool]] = defaultdict(Counter)
    for each, hit in zip(planted, hits_of, strict=True):
        hits[each.family][hit] += 1
        hits["all"][hit] += 1
    return {family: wilson(counts[True], counts.total()) for family, counts in sorted(hits.items())}


def of_ostinato(
    texts: Sequence[str], planted: Sequence[Planted], source: Mapping[Path, list[str]]
) -> Outcome:
    hits = [removed(text, each) for text, each in zip(texts, planted, strict=True)]
    return Outcome(hits=hits, alarms=[len(flagged("\n".join(lines))) for lines in source.values()])


def of_peer(
    python: Path, written: Sequence[Path], planted: Sequence[Planted], source: Mapping[Path, list[str]]
) -> Outcome:
    flagged_lines, alarms = peer_lines(python, written), peer_lines(python, list(source))
    places = [range(4, 5 + each.line.count("\n")) for each in planted]
    hits = [
        any(n in lines for n in flagged_lines[str(path)]) for path, lines in zip(written, places, strict=True)
    ]
    return Outcome(hits=hits, alarms=[len(alarms[str(path)]) for path in source])


def by_form(each: int, rng: random.Random) -> dict[str, Figure]:
    """Return the recall for `each` secrets of every new form, and for all of them."""
    hits = {form: [_is_removed(draw(form, rng)) for _ in range(each)] for form in SHAPES}
    every = [hit for of_form in hits.values() for hit in of_form]
    return {form: wilson(sum(rows), len(rows)) for form, rows in (*hits.items(), ("all", every))}


def _is_removed(drawn: Drawn) -> bool:
    planted = Planted(kind=drawn.form, family="new form", secret=drawn.secret, line=drawn.text)
    return removed(f"x = 1\n{drawn.text}\ny = 2\n", planted)


def growth(size: int) -> dict[str, dict[str, float]]:
    """Return CPU seconds per MB of each slow line at `size` characters, and the ratio for twice the size."""
    figures = {}
    for unit in SLOW:
        once, twice = (min(_spent(unit, n) for _ in range(3)) for n in (size, 2 * size))
        figures[unit] = {"s_per_mb": once / size * 1e6, "ratio": twice / once}
    return figures


def _spent(unit: str, size: int) -> float:
    text = (unit * (size // len(unit) + 1))[:size]
    began = time.process_time()
    find(text)
    return time.process_time() - began


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--planted", type=int, default=1200)
    parser.add_argument("--lines", type=int, default=120_000)
    parser.add_argument("--each", type=int, default=100, help="secrets of each new form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--peer", type=Path, default=None, help="where its virtual environment is, or will be"
    )
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--missed", action="store_true", help="print missed secrets and alarms")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    return parser.parse_args()


def main(run: Run) -> None:
    options = options_of()
    rng = random.Random(options.seed)
    paths = sysconfig.get_paths()
    source = sources([Path(paths["stdlib"]), Path(paths["purelib"])], options.lines, rng)
    planted = [plant(rng) for _ in range(options.planted)]
    texts = hosts(planted, source, rng)
    lines = [len(each) for each in source.values()]
    began = time.process_time()
    outcomes = {"ostinato": of_ostinato(texts, planted, source)}
    spent = time.process_time() - began
    with tempfile.TemporaryDirectory() as directory:
        python = None if options.no_peer else make_peer(options.peer or Path(directory) / "peer")
        if python is not None:
            (folder := Path(directory) / "planted").mkdir()
            outcomes[PEER_NAME] = of_peer(python, write_all(folder, texts), planted, source)
    figures_of = {name: outcome.figures(planted, lines) for name, outcome in outcomes.items()}
    table(
        ["", *figures_of],
        [[name, *(each[name].text(3) for each in figures_of.values())] for name in figures_of["ostinato"]],
    )
    speed = sum(len(line) + 1 for each in source.values() for line in each) / 1e6 / spent
    print(f"{len(planted)} planted, {sum(lines)} lines of {len(source)} files, {speed:.1f} MB a CPU second")
    new = by_form(options.each, rng)
    table(["new form", "recall"], [[form, each.text(3)] for form, each in new.items()])
    other = sources([Path(paths["stdlib"]), Path(paths["purelib"])], options.lines, rng, TEXTS)
    alarms = rate(
        [len(flagged("\n".join(text))) for text in other.values()], [len(text) for text in other.values()]
    )
    print(f"{ALARMS}, other text: {alarms.text(3)}")
    slow = growth(500_000)
    table(
        ["slow line", "s/MB", "twice"],
        [[u.strip(), *(f"{v:.2f}" for v in t.values())] for u, t in slow.items()],
    )
    if options.missed:
        print_misses(planted, outcomes["ostinato"].hits, source)
    run.finish(
        {
            "recall": figures_of["ostinato"]["recall, all"].value,
            "false_alarms_per_1000_lines": figures_of["ostinato"][ALARMS].value,
            "new_forms": {form: asdict(each) for form, each in new.items()},
            "other_text": asdict(alarms),
            "slow_lines": slow,
            "n": {"planted": len(planted), "lines": sum(lines), "files": len(source)},
            "mb_per_cpu_s": speed,
            "rows": {
                name: {row: asdict(each) for row, each in rows.items()} for name, rows in figures_of.items()
            },
        },
        as_json=options.json,
    )


def print_misses(planted: Sequence[Planted], hits: Sequence[bool], source: Mapping[Path, list[str]]) -> None:
    print("\n".join(alarm for lines in source.values() for alarm in alarming(lines)))
    missed = (each for each, hit in zip(planted, hits, strict=True) if not hit)
    print("\n".join(f"missed {each.kind}: {each.line}" for each in missed))


if __name__ == "__main__":
    with Run("redaction") as opened:
        main(opened)
