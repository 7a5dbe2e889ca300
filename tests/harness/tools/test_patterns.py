import re
import subprocess

import pytest

from ostinato.harness.errors import InvalidArguments
from ostinato.harness.tools.patterns import extended

LINES = "a1|ab|x y|[tag]|]|^|a-b|v1.2|\\|a\tb|Foo|foo.bar|{x}|12|| |café"
PATTERNS = r"""\d \D [\d] [\w.]+\. [\w-]+ [-\w] [^\s] ^\s*$ [a-c\d] \bx\b []a] [^]a] [\\] \\ [\]] [^\]]
[\^] [^\^] [\[\]] [\^\-\]] [a\-b] (?:ab|x) (?i)foo [\s\S]y [^\n]x \t [\t] a.*?b \[tag\] \{ [a^]"""
UTF_8 = {"LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("pattern", PATTERNS.split())
def test_a_pattern_of_another_language_finds_the_same_lines(pattern: str) -> None:
    written, ignores_case = extended(pattern)
    command = ["grep", "-E", *(["-i"] if ignores_case else []), "-e", written]
    text = LINES.replace("|", "\n") + "\n"
    found = subprocess.run(command, input=text, capture_output=True, text=True, env=UTF_8, check=False)
    assert found.stdout.split("\n")[:-1] == [line for line in LINES.split("|") if re.search(pattern, line)]
    assert not found.stderr


@pytest.mark.parametrize("pattern", ["(?=a)", "(?P<a>x)", r"\x41", r"a\nb", "a\nb", r"[\D]", r"\p{L}"])
def test_what_grep_cannot_look_for_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArguments):
        extended(pattern)
