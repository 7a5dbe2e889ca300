"""The protocol of a runner: how the suite of one language or test tool is screened, started and planted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ostinato.sandbox.base import Exam, Sandbox, SandboxError
from ostinato.sandbox.exam.guarded.reports import SuiteReports

FOLDER = "suite"
"""The folder, in the directory of a task's tests, whose files are laid over the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedChanges:
    """Changes without the files that could steer the suite.

    >>> ScreenedChanges(changes={"a.py": b"x = 1"}).signs
    ()
    """

    changes: Mapping[str, bytes | None]
    signs: tuple[str, ...] = ()
    """The control files that were left out, and new reaches for the machinery, as signs of tampering."""
    notes: tuple[str, ...] = ()
    """The files that were left out although an honest change may have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """The plan of one run.

    >>> SuitePlan(nonce="ab" * 32, order=[("t.py::test_a", ""), ("t.py::test_a", "equal")]).arguments
    ()
    """

    nonce: str
    """The key that signs the reports of this run, in hexadecimal."""
    order: Sequence[tuple[str, str]]
    """The id of each test in turn, with "" for the real test or the kind of a planted one of this id."""
    arguments: tuple[str, ...] = ()


class SuiteRunner(Protocol):
    """The part of a guarded exam that the language or the test tool decides.

    An id is `FILE::NAME`, or `FILE::GROUP::NAME` for a test in a class, a suite or the like.
    """

    @property
    def planted(self) -> Mapping[str, str]:
        """The kinds of planted tests, with the outcome of each under an honest runner; one is `pass`."""

    def screen(self, exam: Exam) -> ScreenedChanges:
        """Leave out every change that could steer the suite from outside of the code under test."""

    async def run(self, sandbox: Sandbox, exam: Exam, plan: SuitePlan, reports: SuiteReports) -> None:
        """Run the plan in a sandbox with the tree of the exam, and feed the reports until they are done.

        Raises SandboxError when the runner cannot start here.
        """


async def follow(sandbox: Sandbox, command: str, order: bytes, reports: SuiteReports) -> None:
    """Start a command, send it its order on standard input, and read its reports until they are done."""
    process = await sandbox.start(command, stdin=True)
    try:
        await process.send(order)
        await process.send(b"")
    except BrokenPipeError:  # it did not start; what it wrote says why
        pass
    async for data in process.output():
        reports.feed(data)
        if reports.done:
            return


def hidden_files(tests: Path) -> dict[str, Path]:
    """Return the files of the hidden suite by their path in the repository.

    Raises SandboxError for a link, because it could lead anywhere.
    """
    folder = tests / FOLDER
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise SandboxError(f"{path} is a link: a hidden suite may hold files alone")
        if path.is_file() and path.suffix != ".pyc":
            files[path.relative_to(folder).as_posix()] = path
    return files


def reaches(path: str, data: bytes | None, pristine: Path, words: Iterable[str]) -> list[str]:
    """Return a sign for each of the words that a changed file has and its pristine text has not."""
    text = (data or b"").decode(errors="replace")
    before = pristine.read_text(errors="replace") if pristine.is_file() else ""
    return [f"{path} reaches for {word}" for word in words if word in text and word not in before]
