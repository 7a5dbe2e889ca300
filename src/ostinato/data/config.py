"""The settings of a corpus."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CODE = (
    ".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".js", ".ts", ".tsx", ".jsx",
    ".rb", ".sh", ".sql", ".md", ".rst", ".toml", ".proto",
)  # fmt: skip
PERMISSIVE = (
    "MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "PSF-2.0", "Python-2.0",
    "Unlicense", "CC0-1.0", "Zlib",
)  # fmt: skip
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class CorpusError(Exception):
    """A corpus cannot be built or read; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource:
    """One source of text. Its shares of training are those of `weight` among all sources.

    >>> CorpusSource(name="python", packages=("rich",)).weight
    1.0
    """

    name: str
    repositories: tuple[Path, ...] = ()
    """Git repositories, read as they are at `revision`; nothing of them is run or checked out."""
    archives: tuple[str, ...] = ()
    """Source archives and wheels (.tar.gz, .tar.xz, .zip, .whl): files, or URLs in an object store."""
    packages: tuple[str, ...] = ()
    """Packages that are installed beside ostinato."""
    records: tuple[str, ...] = ()
    """Records of sessions (files or URLs): what their users consent to, now and when it was recorded."""
    tokenizer: Path | None = None
    """The checkpoint whose tokenizer the sessions of `records` were recorded with."""
    corrections: tuple[str, ...] = ()
    """Records of sessions: the texts that their users made of edits, by the same consent."""
    revision: str = "HEAD"
    licence: str = ""
    """An SPDX expression that holds for all of the source, such as that of your own code; empty: each
    repository, archive and package must show its own."""
    together: Literal["repository", "file"] = "repository"
    """The text of a document: all files of a repository, archive or package in the order of their paths, or
    each alone."""
    weight: float = 1.0
    """The share of tokens that training draws from it, beside the weights of the others."""
    held_out: bool = False
    """Measure on it, and never train on it nor on near copies of it."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r}: a source's name has small letters, digits, - and _")
        recorded = (*self.records, *self.corrections)
        if not (self.repositories or self.archives or self.packages or recorded):
            raise ValueError(
                f"source {self.name}: name repositories, archives, packages, records or corrections"
            )
        if bool(self.records) != (self.tokenizer is not None):
            raise ValueError(f"source {self.name}: records go with the tokenizer that they were made with")
        if self.weight <= 0:
            raise ValueError(f"source {self.name}: weight {self.weight} must be above 0, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusConfig:
    """The settings of `ostinato data build`."""

    sources: tuple[CorpusSource, ...]
    tokenizer: Path
    """The checkpoint whose tokenizer the text is encoded with."""
    suffixes: tuple[str, ...] = CODE
    """The endings of the names of files that are read."""
    licences: tuple[str, ...] = PERMISSIVE
    """The SPDX licences that may be trained on."""
    fence: tuple[Path, ...] = ()
    """Tasks that are measured with: folders, suites, packed datasets. A file that shares text with one is
    left out."""
    largest_bytes: int = 1_000_000
    """The size above which a file is left out."""
    duplicates: float = 0.8
    """The similarity from which one of two files is a near copy of the other: the estimated share of runs of
    five words that both have, of those that either has."""
    fill_in_the_middle: float = 0.0
    """The share of files that are rearranged to prefix, suffix, middle in the tokenizer's own tokens."""
    seed: int = 0

    def __post_init__(self) -> None:
        if twice := [name for name, n in Counter(each.name for each in self.sources).items() if n > 1]:
            raise ValueError(f"two sources are called {twice[0]}: rename one")
        if all(each.held_out for each in self.sources):
            raise ValueError("sources: at least one must not be held_out, to train on")
        if not 0 <= self.fill_in_the_middle <= 1 or not 0 < self.duplicates <= 1:
            raise ValueError(
                f"fill_in_the_middle {self.fill_in_the_middle} and duplicates {self.duplicates}: shares of 1"
            )
