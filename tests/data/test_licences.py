"""Licences by expression, by text and by metadata."""

import pytest
from tests.data.toolbox import MIT

from ostinato.data.config import PERMISSIVE
from ostinato.data.licences import UNKNOWN, allowed, licence_of, marked

BSD = "Redistribution and use ... Redistributions of source code\nmust retain ..."


@pytest.mark.parametrize(
    ("expression", "is_allowed"),
    [
        ("MIT", True),
        ("mit", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND (Apache-2.0 OR AGPL-3.0-only)", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("LicenseRef-ours", False),
        ("all rights reserved", False),
        ("MIT OR", False),
        ("", False),
        (UNKNOWN, False),
    ],
)
def test_an_expression_leaves_a_choice_or_none(expression: str, is_allowed: bool) -> None:
    assert allowed(expression, PERMISSIVE) is is_allowed


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({}, UNKNOWN),
        ({"LICENSE": MIT}, "MIT"),
        ({"COPYING": BSD}, "BSD-2-Clause"),
        ({"LICENSE.txt": BSD + " Neither the name of"}, "BSD-3-Clause"),
        (
            {"LICENSE": "GNU LESSER GENERAL PUBLIC LICENSE, with the GNU GENERAL PUBLIC LICENSE"},
            "LGPL-3.0-only",
        ),
        ({"LICENSE": "our own words"}, UNKNOWN),
        ({"LICENSE": MIT, "COPYING": "our own words"}, UNKNOWN),
        ({"LICENSE-MIT": MIT, "LICENSE-APACHE": "Apache License\nVersion 2.0"}, "Apache-2.0 AND MIT"),
        ({"LICENSE": "SPDX-License-Identifier: Zlib\nwhatever"}, "Zlib"),
        ({"pyproject.toml": '[project]\nlicense = "MIT OR Apache-2.0"'}, "MIT OR Apache-2.0"),
        ({"pyproject.toml": '[project]\nlicense = {file = "LICENSE"}', "LICENSE": MIT}, "MIT"),
        ({"pyproject.toml": "not toml", "LICENSE": MIT}, "MIT"),
        ({"Cargo.toml": '[package]\nlicense = "MIT/Apache-2.0"'}, "MIT/Apache-2.0"),
        ({"package.json": '{"license": "ISC"}'}, "ISC"),
        ({"package.json": "[]", "LICENSE": MIT}, "MIT"),
        ({"PKG-INFO": "Classifier: License :: OSI Approved :: MIT License\n"}, "MIT"),
        ({"PKG-INFO": "License: BSD License\n"}, "BSD-3-Clause"),
    ],
)
def test_a_tree_shows_its_licence(files: dict[str, str], licence: str) -> None:
    assert licence_of(files.keys(), files.__getitem__) == licence


def test_a_file_marks_itself_at_its_beginning() -> None:
    assert marked("/* SPDX-License-Identifier: GPL-2.0-only */\n") == "GPL-2.0-only"
    assert marked("# SPDX-License-Identifier: MIT OR Apache-2.0\nx = 1") == "MIT OR Apache-2.0"
    assert not marked("x\n" * 2000 + "# SPDX-License-Identifier: MIT")
