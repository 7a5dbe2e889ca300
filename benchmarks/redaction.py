"""Secrets found, in part or whole, and false alarms: ours, kingfisher-secret-scanner, and both together.

    python -m benchmarks.redaction [--peer DIRECTORY] [--examples DIRECTORY] [--missed] [--json]

The corpora:
    planted      secrets of `fuzz/planted_secrets.py` between lines of real source
    shapes       `fuzz/secret_shapes.py`, 21 forms in shells, languages, settings and tools
    development  half of the more than 400 published forms of `fuzz/secret_layouts.py`
    sealed       the other half, with which no rule was made
    its own      the examples in kingfisher's rules, at --examples (`data/rules` of its repository)

A secret is found whole when at most three characters of it stay, in part when some of it goes. Proportions
have 95 % Wilson intervals. False alarms are lines in which something is found, per 1000 lines of three trees
(the standard library, the installed packages, and their text other than Python: documents, JSON, settings, C)
and of `PUBLIC` in `fuzz/secret_layouts.py`, lines that look secret and are not.
All of them count as false, an example key in a manual too. Intervals are those of a bootstrap over files.

The peer runs in this process, from the folder --peer that `pip install --target` filled with it; CPU seconds
leave out its start, which has a row of its own. *Slow lines* were made to be slow: the table shows our CPU
seconds per MB and the ratio of time for twice the text.
"""

import argparse
import importlib
import random
import re
import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import yaml
from fuzz.planted_secrets import plant
from fuzz.secret_layouts import PUBLIC, draw_all
from fuzz.secret_shapes import SHAPES, draw

from benchmarks.measure import Figure, Run, table
from ostinato.store.redaction.find import find

Span = tuple[int, int]
Scanner = Callable[[str], list[Span]]
OURS, PEER, BOTH = "ostinato", "kingfisher", "both"
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
    "\\u0061",
    "| token |\n",
    'a"\n"',
)
"""The repeated units of lines that were made to be slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A text, its secrets, and the corpus and kind it belongs to."""

    corpus: str
    kind: str
    text: str
    secrets: tuple[str, ...]


def ours(text: str) -> list[Span]:
    return [(secret.start, secret.end) for secret in find(text)]


def peer_in(directory: Path) -> Scanner:
    """Return kingfisher's scanner with all its rules; its places in bytes become places in characters."""
    sys.path.insert(0, str(directory))
    package = importlib.import_module("kingfisher_sdk")
    policy = package.DetectionPolicy(inline_ignores=False, markup_context=False)
    scanner = package.Scanner(package.Rules(confidence="low", cache=False), policy=policy)

    def scan(text: str) -> list[Span]:
        data, spans = text.encode(errors="replace"), []
        for finding in scanner.scan(data):
            if finding.visible:
                first, last = finding.location["start_offset"], finding.location["end_offset"]
                start = len(data[:first].decode(errors="replace"))
                spans.append((start, start + len(data[first:last].decode(errors="replace"))))
        return spans

    return scan


def cases(planted: int, each: int, source: Sequence[Sequence[str]], rng: random.Random) -> Iterator[Case]:
    """Yield the secrets of our corpora in their texts."""
    files = [lines for lines in source if len(lines) > 40]
    for one in (plant(rng) for _ in range(planted)):
        lines = rng.choice(files)
        at = rng.randrange(3, len(lines) - 3)
        text = "\n".join([*lines[at - 3 : at], one.line, *lines[at : at + 3]])
        yield Case(corpus="planted", kind=one.family, text=text, secrets=(one.secret,))
    for form in SHAPES:
        for drawn in (draw(form, rng) for _ in range(each)):
            yield Case(corpus="shapes", kind=form, text=drawn.text, secrets=(drawn.secret,))
    for _ in range(max(1, each // 20)):
        for laid in draw_all(rng):
            half = "sealed" if laid.sealed else "development"
            yield Case(corpus=half, kind=laid.form.split("/")[0], text=laid.text, secrets=laid.secrets)


def examples(directory: Path) -> Iterator[Case]:
    """Yield the examples in kingfisher's rules; the secret is a pattern's first group."""
    for path in sorted(directory.glob("*.yml")):
        for rule in yaml.safe_load(path.read_text())["rules"]:
            try:
                pattern = re.compile(rule["pattern"].strip())
            except re.error:
                continue  # a construct that Python's expressions lack
            for example in rule.get("examples") or ():
                if match := pattern.search(str(example)):
                    secret = (
                        match["TOKEN"] if "TOKEN" in pattern.groupindex else match[min(1, pattern.groups)]
                    )
                    if secret:
                        yield Case(corpus="its own", kind=path.stem, text=str(example), secrets=(secret,))


def outcome(case: Case, spans: Sequence[Span]) -> str:
    """Return `whole`, `part` or `missed`, the worst of the case's secrets."""
    left = []
    for secret in case.secrets:
        at = case.text.index(secret)
        inside = {i for start, end in spans for i in range(max(start, at), min(end, at + len(secret)))}
        left.append((len(secret) - len(inside) > 3) + (not inside))
    return ("whole", "part", "missed")[max(left)]


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
    picks = np.random.default_rng(0).integers(0, len(a), (draws, len(a)))
    low, high = np.quantile(1000 * a[picks].sum(1) / n[picks].sum(1), [0.025, 0.975])
    value = float(1000 * a.sum() / n.sum())
    return Figure(value=value, low=float(low), high=float(high), n=int(n.sum()), confidence=0.95)


def trees(lines: int, rng: random.Random) -> dict[str, list[str]]:
    """Return the files of each tree, drawn up to `lines` lines."""
    paths = sysconfig.get_paths()
    standard, packages = Path(paths["stdlib"]), Path(paths["purelib"])
    return {
        "standard library": sources([standard], lines, rng, (".py",)),
        "packages": sources([packages], lines, rng, (".py",)),
        "other text": sources([standard, packages], lines, rng, TEXTS),
        "public": [f"{line}\n" for line in PUBLIC],
    }


def sources(roots: Sequence[Path], lines: int, rng: random.Random, endings: Sequence[str]) -> list[str]:
    files = sorted(
        p for root in roots for p in root.rglob("*.*") if p.suffix in endings and _is_source(p, root)
    )
    rng.shuffle(files)
    taken: list[str] = []
    total = 0
    while files and total < lines:
        taken.append(files.pop().read_text(errors="replace"))
        total += taken[-1].count("\n") + 1
    return taken


def _is_source(path: Path, root: Path) -> bool:
    left_out = {"site-packages", "__pycache__", "tests", "test", "ostinato"}
    return not left_out & set(path.relative_to(root).parts) and path.stat().st_size < 10**6


def alarming(text: str, spans: Sequence[Span]) -> int:
    return len({text.count("\n", 0, start) for start, _ in spans})


def measured(scanner: Scanner, texts: Sequence[str]) -> tuple[list[list[Span]], float]:
    """Return what `scanner` finds in each text, and its CPU seconds per MB."""
    began = time.process_time()
    spans = [scanner(text) for text in texts]
    return spans, (time.process_time() - began) / sum(map(len, texts)) * 1e6


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


def recalls(every: Sequence[Case], found: Sequence[Sequence[Span]]) -> dict[str, dict[str, Figure]]:
    """Return for each corpus, and for each kind in it, the proportions found whole and in part."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case, spans in zip(every, found, strict=True):
        for row in (case.corpus, f"{case.corpus}, {case.kind}"):
            counts[row][outcome(case, spans)] += 1
    return {
        row: {name: wilson(count[name], count.total()) for name in ("whole", "part")}
        for row, count in sorted(counts.items())
    }


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--planted", type=int, default=1200)
    parser.add_argument("--lines", type=int, default=120_000, help="lines of each tree")
    parser.add_argument(
        "--each", type=int, default=100, help="secrets of each shape; a 20th of each new form"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", type=Path, default=None, help="the folder with kingfisher_sdk in it")
    parser.add_argument("--examples", type=Path, default=None, help="the folder with kingfisher's rules")
    parser.add_argument("--missed", action="store_true", help="print what we miss, and our alarms")
    parser.add_argument("--json", action="store_true", help="print JSON as well, last line of the output")
    return parser.parse_args()


def main(run: Run) -> None:
    options = options_of()
    rng = random.Random(options.seed)
    tree = trees(options.lines, rng)
    hosts = [text.split("\n") for text in tree["standard library"] + tree["packages"]]
    every = list(cases(options.planted, options.each, hosts, rng))
    every += examples(options.examples) if options.examples else ()
    scanners, began = {OURS: ours}, time.process_time()
    scanners |= {PEER: peer_in(options.peer)} if options.peer else {}
    start_s = time.process_time() - began

    texts, sizes = [each.text for each in every], {name: len(part) for name, part in tree.items()}
    source = [text for part in tree.values() for text in part]
    found = {name: measured(scanner, texts)[0] for name, scanner in scanners.items()}
    alarms, speed = {}, {}
    for name, scanner in scanners.items():
        alarms[name], speed[name] = measured(scanner, source)
    if options.peer:
        found[BOTH] = [a + b for a, b in zip(found[OURS], found[PEER], strict=True)]
        alarms[BOTH] = [a + b for a, b in zip(alarms[OURS], alarms[PEER], strict=True)]
        speed[BOTH] = speed[OURS] + speed[PEER]

    rows = {name: recalls(every, spans) for name, spans in found.items()}
    per_tree = {name: _rates(source, sizes, spans) for name, spans in alarms.items()}
    table(
        ["found whole (in part)", *rows],
        [[r, *(_cell(each[r]) for each in rows.values())] for r in rows[OURS] if "its own," not in r],
    )
    table(
        ["false alarms per 1000 lines", *per_tree],
        [[part, *(each[part].text(3) for each in per_tree.values())] for part in tree],
    )
    table(["CPU s per MB", *speed], [["source", *(f"{each:.2f}" for each in speed.values())]])
    slow = growth(500_000)
    table(
        ["slow line", "s/MB", "twice"],
        [[repr(u), *(f"{v:.2f}" for v in t.values())] for u, t in slow.items()],
    )
    if options.missed:
        _print_misses(every, found[OURS], source, alarms[OURS])
    run.finish(
        {
            "recall": {
                n: {r: {k: asdict(f) for k, f in c.items()} for r, c in v.items()} for n, v in rows.items()
            },
            "false_alarms_per_1000_lines": {
                name: {part: asdict(figure) for part, figure in each.items()}
                for name, each in per_tree.items()
            },
            "cpu_s_per_mb": speed,
            "peer_start_cpu_s": start_s if options.peer else None,
            "slow_lines": slow,
            "n": {"cases": len(every), "files": len(source), "lines": sum(t.count("\n") + 1 for t in source)},
        },
        as_json=options.json,
    )


def _cell(figures: dict[str, Figure]) -> str:
    return f"{figures['whole'].text(3)} ({figures['part'].value:.3f})"


def _rates(
    source: Sequence[str], sizes: dict[str, int], spans: Sequence[Sequence[Span]]
) -> dict[str, Figure]:
    """Return the alarms of each tree, whose files follow one another in `source`."""
    figures, at = {}, 0
    for name, size in sizes.items():
        rows = range(at, at + size)
        counts = [alarming(source[i], spans[i]) for i in rows]
        figures[name] = rate(counts, [source[i].count("\n") + 1 for i in rows])
        at += size
    return figures


def _print_misses(
    every: Sequence[Case],
    found: Sequence[Sequence[Span]],
    source: Sequence[str],
    alarms: Sequence[Sequence[Span]],
) -> None:
    """Print the false alarms, and what is not found whole outside the sealed half."""
    for text, spans in zip(source, alarms, strict=True):
        for start, end in spans:
            line = text[text.rfind("\n", 0, start) + 1 : end + 20]
            print(f"alarm {text[start:end]!r:.70} in {line!r:.160}")
    for case, spans in zip(every, found, strict=True):
        if case.corpus != "sealed" and (told := outcome(case, spans)) != "whole":
            print(f"{told} {case.corpus}, {case.kind}: {case.text!r:.200}")


if __name__ == "__main__":
    with Run("redaction") as opened:
        main(opened)
