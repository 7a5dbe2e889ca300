"""The one who decides the assertions of hidden tests, as their text tells before a candidate runs.

    assert alpha(7) == 28              the judge compares an answer with a value of the test's own: it decides
    assert alpha(7) == calc.WANTED     both sides come from the code under test, which decides itself
    assert helpers.same(alpha(7), 28)  the comparison runs in the process of the code under test
    if calc.READY: assert …            the code under test says whether anything is asserted

A test is read as it would run, with an `Origin` in place of each value; functions of the tests' own are
followed, and what is not known to be the tests' own comes from the candidate. `values` finds origins,
`deciding` who decides an expression that is asserted, `reading` reads the statements of tests.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from ostinato.assertions.reading import TestReader


def undecided(
    tests: Mapping[str, str], repository: Iterable[str], ids: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return a sentence for each test about which the candidate's code could decide itself.

    `tests` are the texts of the tests' own Python files by path, `repository` the paths of the repository's
    files; without `ids` all tests count. Empty where the judge decides every one.

    >>> text = "from calc import alpha, WANTED\\n\\ndef test_a():\\n    assert alpha(7) == {}\\n"
    >>> undecided({"test_h.py": text.format("28")}, ["calc.py"], ["test_h.py::test_a"])
    ()
    >>> undecided({"test_h.py": text.format("WANTED")}, ["calc.py"], ["test_h.py::test_a"])
    ('test_h.py::test_a, line 4: both sides of a comparison come from the code under test',)
    """
    parts = [PurePosixPath(path).parts for path in repository if path.endswith(".py")]
    tops = {each[0] for each in parts} | {each[1] for each in parts if each[0] == "src" and len(each) > 1}
    names = frozenset(name.removesuffix(".py") for name in tops)
    return _undecided(tuple(sorted(tests.items())), names, tuple(ids))


def undecided_on_disk(tests: Path, repository: Path, ids: Sequence[str]) -> tuple[str, ...]:
    """Return what `undecided` says of the tests and the repository in two folders."""
    texts = {
        path.relative_to(tests).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in tests.rglob("*.py")
    }
    tops = [each for each in (*repository.iterdir(), *repository.glob("src/*")) if each.name != ".git"]
    inside = (each if each.is_file() else next(each.rglob("*.py"), each) for each in tops)
    return undecided(texts, (path.relative_to(repository).as_posix() for path in inside), ids)


@lru_cache(maxsize=512)
def _undecided(
    tests: tuple[tuple[str, str], ...], repository: frozenset[str], ids: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        return tuple(TestReader(dict(tests), repository).faults(ids))
    except (SyntaxError, ValueError, RecursionError) as error:
        return (f"the hidden tests cannot be read: {error}",)
