"""The card of a corpus: what went in, what stayed out and why, as JSON and as a page."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ostinato.data.config import CorpusConfig

CARD = "card.json"
KEPT = "kept"


@dataclass(slots=True)
class FileTally:
    """The files and bytes by what became of them: KEPT, or a reason for which they are out.

    >>> tally = FileTally()
    >>> tally.add("binary", 10)
    >>> tally.most()
    'binary: 1'
    """

    rows: dict[str, Counter[str]] = field(default_factory=dict)
    secrets: int = 0

    def add(self, reason: str, size: int) -> None:
        """Count a file; an empty reason means that it was kept."""
        self.rows.setdefault(reason or KEPT, Counter()).update(files=1, bytes=size)

    def move(self, reason: str, size: int) -> None:
        """Count a file that was counted as kept under a reason instead."""
        self.add(reason, size)
        self.rows[KEPT].subtract({"files": 1, "bytes": size})

    def merge(self, other: "FileTally") -> None:
        self.secrets += other.secrets
        for reason, row in other.rows.items():
            self.rows.setdefault(reason, Counter()).update(row)

    def most(self) -> str:
        """Return the reasons against most files, for a message."""
        out = {reason: row["files"] for reason, row in self.rows.items() if reason != KEPT}
        some = sorted(out.items(), key=lambda item: -item[1])[:4]
        return ", ".join(f"{reason}: {count}" for reason, count in some) or "it has no files"


def written(
    folder: Path,
    config: CorpusConfig,
    about: Mapping[str, Any],
    shards: Mapping[str, Sequence[Mapping[str, Any]]],
    tallies: Mapping[str, FileTally],
) -> dict[str, Any]:
    """Write card.json and card.md into the folder of a corpus; return the former's content.

    Its `digest` is that of everything else in it, the digests of all shards among them.
    """
    sources = [
        {"name": source.name, "weight": source.weight, "held_out": source.held_out}
        | {"tokens": sum(shard["tokens"] for shard in shards[source.name])}
        | {"documents": sum(shard["documents"] for shard in shards[source.name])}
        | {"secrets": tallies[source.name].secrets, "files": tallies[source.name].rows}
        | {"shards": list(shards[source.name])}
        for source in config.sources
    ]
    settings = {name: value for name, value in asdict(config).items() if name != "sources"}
    card = {**about, "sources": sources, "settings": json.loads(json.dumps(settings, default=str))}
    digest = hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()
    card = {"digest": digest, **card}
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n")
    (folder / "card.md").write_text(_page(card))
    return card


def _page(card: Mapping[str, Any]) -> str:
    sources = card["sources"]
    reasons = sorted({reason for source in sources for reason in source["files"]} - {KEPT})
    names = [source["name"] + (" (held out)" if source["held_out"] else "") for source in sources]
    total = sum(source["weight"] for source in sources if not source["held_out"])

    def row(title: str, cells: Sequence[str]) -> str:
        return f"| {title} | {' | '.join(cells)} |"

    def files(reason: str) -> list[str]:
        rows = [source["files"].get(reason, {"files": 0, "bytes": 0}) for source in sources]
        return [f"{each['files']:,} ({each['bytes'] / 1e6:,.2f} MB)" for each in rows]

    lines = [
        "# Corpus " + card["digest"][:12],
        "",
        row("", names),
        row("---", ["---"] * len(names)),
        row(
            "share of training",
            ["" if each["held_out"] else f"{each['weight'] / total:.1%}" for each in sources],
        ),
        row("tokens", [f"{each['tokens']:,}" for each in sources]),
        row("documents", [f"{each['documents']:,}" for each in sources]),
        row("files " + KEPT, files(KEPT)),
        *(row(f"out: {reason}", files(reason)) for reason in reasons),
        row("secrets replaced", [f"{each['secrets']:,}" for each in sources]),
        "",
        f"Fence: {card['fenced_tasks']} tasks.",
        "",
        "| tree | state | licence | files |",
        "| --- | --- | --- | --- |",
        *(
            row(f"{tree['name']} ({tree['kind']})", [tree["state"][:12], tree["licence"], str(tree["files"])])
            for tree in card["trees"]
        ),
    ]
    return "\n".join(lines) + "\n"
