"""The recall of search by meaning: does it find the function that a sentence describes?

`python -m benchmarks.search`. Queries are first sentences of docstrings in the installed standard library;
the docstring is removed from the file, and the right result is its function. The peer is grep in the same
run, with every word of the query; it ranks pieces by the number of different words in them, then by matches.
Both rank the same pieces.
"""

import argparse
import ast
import json
import random
import re
import subprocess
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ostinato.search.chunks import chunks, syntax_of
from ostinato.search.config import SearchConfig
from ostinato.search.embed import STOP
from ostinato.search.index import MOST_HITS, Index, content_hash
from ostinato.search.server import open_index

LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "ensurepip", "pydoc_data"}
Place = tuple[str, int]
"""A path, and the first line of a piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A sentence, and the line of the `def` it describes."""

    text: str
    path: str
    line: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--files", type=int, default=0, help="only so many files (0: all); minilm is slow")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=["hashed"])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, last line")
    options = parser.parse_args()
    files, queries = corpus(options.files, options.queries, options.seed)
    rows = {model: measure(model, files, queries) for model in options.models}
    rows["grep"] = measure_grep(files, queries)
    show(rows, len(files), len(queries), Console(stderr=options.json))
    if options.json:
        print(json.dumps({"files": len(files), "queries": len(queries), **rows}))


def corpus(most_files: int, most: int, seed: int) -> tuple[dict[str, bytes], list[Query]]:
    """Return the library without the docstrings of the queries, and the queries."""
    library = Path(sysconfig.get_path("stdlib"))
    paths = [path.relative_to(library) for path in sorted(library.rglob("*.py"))]
    chosen = [path for path in paths if not LEFT_OUT & set(path.parts)]
    draw = random.Random(seed)
    draw.shuffle(chosen)
    texts = {str(path): (library / path).read_bytes() for path in chosen[: most_files or None]}
    described = [query for path, data in sorted(texts.items()) for query in documented(path, data)]
    draw.shuffle(described)
    cut = {path: data.decode(errors="replace").split("\n") for path, data in texts.items()}
    for query, first, last in described[:most]:
        cut[query.path][first - 1 : last] = [""] * (last - first + 1)
    return {path: "\n".join(lines).encode() for path, lines in cut.items()}, [
        q for q, _, _ in described[:most]
    ]


def documented(path: str, data: bytes) -> list[tuple[Query, int, int]]:
    """Return functions with a describing sentence of 5 to 30 words, and the lines of their docstrings."""
    try:
        module = ast.parse(data)
    except SyntaxError:
        return []
    described = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > 1:
            sentence = " ".join((ast.get_docstring(node) or "").strip().split("\n\n")[0].split())
            if 5 <= len(sentence.split()) <= 30:
                doc = node.body[0]
                query = Query(text=sentence, path=path, line=node.lineno)
                described.append((query, doc.lineno, doc.end_lineno or doc.lineno))
    return described


def measure(model: str, files: Mapping[str, bytes], queries: Sequence[Query]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "search.db"
        index = open_index(SearchConfig(cache=cache, model=model))
        started = time.perf_counter()
        tree = feed(index, files)
        index_s = time.perf_counter() - started
        changed = dict(files) | {min(files): files[min(files)] + b"\n\ndef added():\n    pass\n"}
        started = time.perf_counter()
        feed(index, changed)
        again_s = time.perf_counter() - started
        index.query(tree, "warm")
        started = time.perf_counter()
        ranks = [rank(query, index, tree) for query in queries]
        query_ms = 1e3 * (time.perf_counter() - started) / len(queries)
        index.close()
        size = cache.stat().st_size
    times = {"index_s": index_s, "one_file_changed_s": again_s, "query_ms": query_ms, "bytes": size}
    return quality(ranks) | times


def feed(index: Index, files: Mapping[str, bytes]) -> str:
    tree, missing = index.register({path: content_hash(data) for path, data in files.items()})
    index.add((path, files[path]) for path in missing)
    return tree


def rank(query: Query, index: Index, tree: str) -> int | None:
    hits = index.query(tree, query.text, k=MOST_HITS)
    right = (
        n for n, hit in enumerate(hits) if hit.path == query.path and hit.first <= query.line <= hit.last
    )
    return next(right, None)


def measure_grep(files: Mapping[str, bytes], queries: Sequence[Query]) -> dict[str, float]:
    cut = {path: chunks(data, syntax_of(path)) for path, data in files.items()}
    starts = {
        path: {line: piece.first for piece in pieces for line in range(piece.first, piece.last + 1)}
        for path, pieces in cut.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        for path, data in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(data)
        started = time.perf_counter()
        ranks = [grep_rank(query, Path(folder), starts) for query in queries]
        query_ms = 1e3 * (time.perf_counter() - started) / len(queries)
    return quality(ranks) | {"query_ms": query_ms}


def grep_rank(query: Query, folder: Path, starts: Mapping[str, Mapping[int, int]]) -> int | None:
    words = {word.lower() for word in re.findall(r"\w{2,}", query.text)} - STOP
    patterns = [part for word in sorted(words) for part in ("-e", word)]
    command = ["grep", "-rnoiIFZ", *patterns, "."]
    output = subprocess.run(command, cwd=folder, check=False, capture_output=True).stdout
    hits: defaultdict[Place, Counter[str]] = defaultdict(Counter)
    for row in output.decode(errors="replace").splitlines():
        path, _, rest = row.removeprefix("./").partition("\0")
        line, _, word = rest.partition(":")
        start = starts[path].get(int(line))
        if start is not None:
            hits[path, start][word.lower()] += 1
    best = sorted(hits, key=lambda place: (-len(hits[place]), -hits[place].total(), place))
    answer = (query.path, starts[query.path].get(query.line, -1))
    return best.index(answer) if answer in best[:MOST_HITS] else None


def quality(ranks: Sequence[int | None]) -> dict[str, float]:
    recall = {f"recall_at_{k}": sum(r is not None and r < k for r in ranks) / len(ranks) for k in (1, 5, 10)}
    return recall | {"mrr": sum(1 / (r + 1) for r in ranks if r is not None) / len(ranks)}


def show(rows: Mapping[str, Mapping[str, float]], files: int, queries: int, console: Console) -> None:
    table = Table(title=f"{queries} sentences, {files} files of the standard library")
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    for name in ("", *names):
        table.add_column(name.replace("_", " "), justify="right")
    for model, row in rows.items():
        table.add_row(model, *(f"{row[name]:,.3f}" if name in row else "" for name in names))
    console.print(table)


if __name__ == "__main__":
    main()
