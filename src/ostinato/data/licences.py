"""The licence of a repository, an archive, a package or a file, and whether it may be trained on.

Expressions are read by `license-expression`. A licence is taken from what is declared in metadata, and else
from the text of a licence file, by phrases that only one licence has. What neither shows is unknown, which is
out: nothing is guessed.
"""

import json
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from email import message_from_string
from typing import Any

UNKNOWN = "unknown"
FILES = re.compile(r"(?:licen[cs]e|copying|unlicense)(?:[.-](?:txt|md|rst|apache|mit|bsd))?", re.IGNORECASE)
"""The names of licence files at the top of a tree."""
DECLARED = ("pyproject.toml", "package.json", "Cargo.toml", "PKG-INFO", "METADATA")
MARK = re.compile(r"SPDX-License-Identifier:[ \t]*([^\r\n*]+)")
HEAD = 2000
"""The characters at the beginning of a file in which its own mark may stand."""
PHRASES = (
    ("Apache-2.0", r"Apache License,? Version 2\.0"),
    ("AGPL-3.0-only", r"GNU AFFERO GENERAL PUBLIC LICENSE"),
    ("LGPL-3.0-only", r"GNU LESSER GENERAL PUBLIC LICENSE"),
    ("GPL-3.0-only", r"GNU GENERAL PUBLIC LICENSE"),
    ("MPL-2.0", r"Mozilla Public License,? (?:Version|v\.) ?2\.0"),
    ("PSF-2.0", r"PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2"),
    ("Unlicense", r"This is free and unencumbered software released into the public domain"),
    ("CC0-1.0", r"CC0 1\.0 Universal"),
    ("ISC", r"Permission to use, copy, modify, and(?:/or)? distribute this software for any purpose with"),
    ("MIT", r"Permission is hereby granted, free of charge, to any person obtaining a copy"),
    ("BSD-3-Clause", r"Redistributions? of source code must retain.*Neither the names? of"),
    ("BSD-2-Clause", r"Redistributions? of source code must retain"),
)  # fmt: skip
"""Licences by their text, in order: those above the others may quote them. For the filter all versions of the
GNU licences are alike."""
CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""The last words of trove classifiers; BSD's clauses are not told apart there, and both are alike here."""


def allowed(expression: str, licences: Collection[str]) -> bool:
    """Return whether one may choose only licences of `licences`; False for what is no SPDX expression.

    An exception (`WITH`) adds permissions, so the licence before it decides.
    """
    from license_expression import ExpressionError, get_spdx_licensing

    known = {name.lower() for name in licences}

    def holds(node: Any) -> bool:
        if parts := getattr(node, "args", ()):
            return (any if node.operator.strip() == "OR" else all)(map(holds, parts))
        return str(getattr(node, "license_symbol", node).key).lower() in known

    try:
        parsed = get_spdx_licensing().parse(expression, validate=False)
    except ExpressionError:
        return False
    return parsed is not None and holds(parsed)


def marked(text: str) -> str:
    """Return the expression with which a file marks itself; empty without one."""
    found = MARK.search(text, 0, HEAD)
    return found[1].strip().removesuffix("-->").strip() if found else ""


def licence_of(names: Collection[str], read: Callable[[str], str]) -> str:
    """Return the licence that the files at the top of a tree show, or UNKNOWN; `read` returns one's text.

    A declared expression is believed before the text of a licence file; of several licence files all hold.
    """
    for name in DECLARED:
        if name in names and (found := _declared(name, read(name))):
            return found
    texts = [read(name) for name in sorted(names) if FILES.fullmatch(name)]
    shown = sorted({marked(text) or _by_text(text) for text in texts})
    return UNKNOWN if not shown or UNKNOWN in shown else " AND ".join(shown)


def _by_text(text: str) -> str:
    flat = " ".join(text.split())
    return next((name for name, phrase in PHRASES if re.search(phrase, flat, re.IGNORECASE)), UNKNOWN)


def _declared(name: str, text: str) -> str:
    """Return the expression in a file of metadata; empty where it has none or cannot be read."""
    try:
        if name.endswith(".toml"):
            tables = tomllib.loads(text)
            return _expression(tables.get("project", tables.get("package", {})).get("license"))
        if name.endswith(".json"):
            return _expression(json.loads(text).get("license"))
    except (ValueError, AttributeError):
        return ""
    return of_metadata(text)


def of_metadata(text: str) -> str:
    """Return the licence in a Python package's metadata; empty where it shows none."""
    message = message_from_string(text)
    if found := message.get("License-Expression"):
        return str(found)
    last = [row.rpartition("::")[2].strip() for row in message.get_all("Classifier") or ()]
    classified = sorted({CLASSIFIERS[row] for row in last if row in CLASSIFIERS})
    return " AND ".join(classified) or _expression(message.get("License"))


def _expression(value: object) -> str:
    """Return a short text, which may be an expression, where a field holds one and no whole licence."""
    text = value.get("text", "") if isinstance(value, Mapping) else value
    short = text.strip() if isinstance(text, str) and len(text) < 100 else ""
    return CLASSIFIERS.get(short, short)
