import pytest

from ostinato.harness.errors import InvalidArguments
from ostinato.harness.tools.find import matching

FILES = [
    ".github/ci.yml",
    "calc.py",
    "docs/a[1].md",
    "node_modules/x/calc.py",
    "pkg/__pycache__/util.pyc",
    "pkg/deep/er/tool.py",
    "pkg/util.py",
]


@pytest.mark.parametrize(
    ("pattern", "below", "found"),
    [
        ("*.py", ".", ["calc.py", "pkg/deep/er/tool.py", "pkg/util.py"]),
        ("./*.py", ".", ["calc.py", "pkg/deep/er/tool.py", "pkg/util.py"]),
        ("**/*.py", ".", ["calc.py", "pkg/deep/er/tool.py", "pkg/util.py"]),
        ("pkg/*.py", ".", ["pkg/util.py"]),
        ("pkg/**", ".", ["pkg/deep/er/tool.py", "pkg/util.py"]),
        ("**/deep/**/*.py", ".", ["pkg/deep/er/tool.py"]),
        ("*.py", "pkg", ["pkg/deep/er/tool.py", "pkg/util.py"]),
        ("*/er/*.py", "pkg/", ["pkg/deep/er/tool.py"]),
        ("*.py", "./pkg//deep/./", ["pkg/deep/er/tool.py"]),
        ("*.py", "pk", []),
        ("calc.{py,md}", ".", ["calc.py"]),
        ("{calc,util}.{p?,md}", ".", ["calc.py", "pkg/util.py"]),
        ("[b-d]*.py", ".", ["calc.py"]),
        ("a[[]1].md", ".", ["docs/a[1].md"]),
        (r"a\[1].md", ".", ["docs/a[1].md"]),
        ("[^c]*.py", ".", ["pkg/deep/er/tool.py", "pkg/util.py"]),
        (".github/*", ".", [".github/ci.yml"]),
        ("*.pyc", ".", []),
        ("calc.py/", ".", []),
        ("", ".", []),
    ],
)
def test_patterns(pattern: str, below: str, found: list[str]) -> None:
    assert list(matching(FILES, pattern, below)) == found


def test_a_pattern_says_which_files_are_meant() -> None:
    with pytest.raises(InvalidArguments, match="not which are not"):
        list(matching(FILES, "!*.py"))


def test_a_pattern_cannot_explode() -> None:
    with pytest.raises(InvalidArguments, match="more than 64 alternatives"):
        list(matching(FILES, "{a,b}" * 30))
    assert not list(matching(["a" * 200], "*a" * 60 + "b"))
    assert not list(matching(["a/" * 200], "**/a/" * 60 + "b"))
