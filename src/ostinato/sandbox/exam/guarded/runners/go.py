"""The runner of suites of Go: hidden tests are compiled beside a test of ours, which runs and reports them.

    hidden tests + our test ──go test -c──► binary; sources removed ──► it runs, its reports are signed

Nothing of the repository runs while it is compiled. The nonce is compiled in under a name that is new in each
run, so the tested code can neither name it nor read it in a source.
"""

import fnmatch
import json
import posixpath
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ostinato.sandbox.base import Exam, Sandbox, SandboxError
from ostinato.sandbox.exam.guarded.inside import start
from ostinato.sandbox.exam.guarded.reports import SuiteReports
from ostinato.sandbox.exam.guarded.runners.base import ScreenedChanges, SuitePlan, hidden_files, reaches

_SOURCE = Path(str(start.__file__)).with_name("under_go.txt").read_text()
_FAILING = (
    *("error", "errorf", "fatal", "fatalf", "fail", "fail_now", "inside", "cleanup", "helper", "compared"),
)
_GO = (
    "GOENV=off GOFLAGS= GOWORK=off GOTOOLCHAIN=local GOPROXY=off GOMAXPROCS=2"
    ' HOME="$PWD/{folder}" GOCACHE="$PWD/{folder}/cache" GOTMPDIR="$PWD/{folder}"'
)
_WORDS = (
    *('import "C"', '"C"', '"unsafe"', "go:linkname", "Mprotect", "os.Executable", "/proc/", '"plugin"'),
    *("os.NewFile", "syscall.Write", "syscall.Exec", "syscall.Dup", '"debug/', "os.Args"),
)
"""Words by which code of Go reaches for its own program, its memory or descriptors that nobody gave it."""
_LINKED = (".s", ".S", ".syso", ".c", ".h", ".cc", ".cpp", ".m", ".swig", ".swigcxx", ".a")
"""The ends of names of files that `go test` would link beside the code in Go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Package:
    """One package with planned tests.

    >>> _Package(folder=".", name="calc", plan=[(0, "TestA", "")], word="Zab").folder
    '.'
    """

    folder: str
    name: str
    plan: Sequence[tuple[int, str, str]]
    """Place, name of the test, and "" or the kind of a planted test, of each in turn."""
    word: str

    def source(self, nonce: str, *, last: bool) -> str:
        """Return our test file for this package."""
        rows = [
            f"{{{place}, {json.dumps(name)}, {f'plantedWORD[{json.dumps(kind)}]' if kind else name}}},"
            for place, name, kind in self.plan
        ]
        text = _SOURCE.replace("PLAN\n", "\n\t".join(rows) + "\n")
        for word, meaning in (
            ("PACKAGE", self.name), ("NONCE", nonce), ("LAST", str(last).lower()), ("WORD", self.word)
        ):  # fmt: skip
            text = text.replace(word, meaning)
        return text


class GoRunner:
    """A program for each package with planned tests."""

    @property
    def planted(self) -> Mapping[str, str]:
        return {"pass": "passed", **dict.fromkeys(_FAILING, "failed"), "skip": "skipped"}

    def screen(self, exam: Exam) -> ScreenedChanges:
        """Leave out tests, modules and what is linked beside Go; notice reaches for memory or descriptors."""
        hidden = hidden_files(exam.tests)
        kept: dict[str, bytes | None] = {}
        signs, notes = [], []
        for path, data in sorted(exam.changes.items()):
            clean = posixpath.normpath(path)
            pristine = exam.repo / clean
            before = pristine.read_text(errors="replace") if pristine.is_file() else ""
            if clean in hidden or clean.endswith("_test.go"):
                continue
            if why := _steers(clean, (data or b"").decode(errors="replace"), before):
                signs.append(f"{path} {why}")
            elif posixpath.basename(clean) in ("go.mod", "go.sum"):
                notes.append(f"{path} was left out: the modules of the repository are used")
            else:
                kept[path] = data
                if clean.endswith(".go"):
                    signs += reaches(path, data, pristine, _WORDS)
                    signs += _embeds(clean, (data or b"").decode(errors="replace"), hidden)
        return ScreenedChanges(changes=kept, signs=tuple(signs), notes=tuple(notes))

    async def run(self, sandbox: Sandbox, exam: Exam, plan: SuitePlan, reports: SuiteReports) -> None:
        folder = f".{secrets.token_hex(8)}"
        packages = _packages(exam, plan)
        for number, package in enumerate(packages):
            text = package.source(plan.nonce, last=number == len(packages) - 1)
            await sandbox.write(f"{package.folder}/{package.word}_test.go", text.encode())
        binaries = {each.folder: f"{folder}/{each.word}" for each in packages}
        built = [each for each in binaries if await _build(sandbox, folder, each, binaries[each], reports)]
        sources = [f"{each.folder}/{each.word}_test.go" for each in packages]
        sources += [path for path in hidden_files(exam.tests) if path.endswith("_test.go")]
        await sandbox.exec(f"rm -f -- {shlex.join(sources)}; rm -rf {folder}/cache {folder}/go-build*")
        reports.begin()  # it can start here: from now on an end is the candidate's doing
        for package in packages:
            if package.folder in built:
                await _run(sandbox, binaries[package.folder], package, reports)


def _packages(exam: Exam, plan: SuitePlan) -> list[_Package]:
    """Return the packages of the planned tests; a test that its file does not have is left out.

    Raises SandboxError for a file that is no test file of Go.
    """
    hidden = hidden_files(exam.tests)
    groups: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    for place, (test, kind) in enumerate(plan.order):
        file, _, name = test.partition("::")
        path = hidden.get(file, exam.repo / file)
        text = path.read_text(errors="replace") if path.is_file() else ""
        found = re.search(r"^package\s+(\w+)", text, re.MULTILINE)
        if not file.endswith("_test.go") or found is None:
            raise SandboxError(f"{file} is no test file of Go: `test_ids` are `FILE_test.go::TestName`")
        if re.fullmatch(r"Test\w*", name) and re.search(rf"^func {name}\(", text, re.MULTILINE):
            key = posixpath.dirname(file) or ".", found[1]
            groups.setdefault(key, []).append((place, name, kind))
    return [
        _Package(folder=folder, name=name, plan=rows, word=f"Z{secrets.token_hex(16)}")
        for (folder, name), rows in groups.items()
    ]


async def _build(sandbox: Sandbox, scratch: str, folder: str, binary: str, reports: SuiteReports) -> bool:
    """Compile the tests of a folder; what the compiler says is a note. Raises SandboxError without Go."""
    command = (
        f"mkdir -p {scratch} && go version >/dev/null 2>&1 || exit 127; {_GO.format(folder=scratch)}"
        f" go test -c -vet=off -o {binary} ./{shlex.quote(folder)}"
    )
    result = await sandbox.exec(command)
    if result.exit_code == 127:
        raise SandboxError(
            "no `go` that starts in the sandbox: install it there, with memory_mb = 1024 or more"
        )
    if result.exit_code:
        reports.uncollected(folder, " ".join(result.output.split())[-300:])
    return result.exit_code == 0


async def _run(sandbox: Sandbox, binary: str, package: _Package, reports: SuiteReports) -> None:
    up = "../" * len(PurePosixPath(package.folder).parts)
    process = await sandbox.start(
        f"cd {shlex.quote(package.folder)} && GUARD_FIRST={reports.count} exec ./{up}{binary}"
        f" -test.run '^Test{package.word}$' -test.paniconexit0 9>&1 >/dev/null 2>&1 </dev/null"
    )
    async for data in process.output():
        reports.feed(data)
        if reports.done:
            return


def _steers(path: str, text: str, before: str) -> str | None:
    """Return why no honest change needs this file, or None."""
    name, parts = posixpath.basename(path), PurePosixPath(path).parts
    if "vendor" in parts[:-1]:
        return "would be compiled instead of a module of another"
    if name.startswith("go.work"):
        return "would choose other modules"
    if name == "go.mod" and (new := _directives(text) - _directives(before)):
        return f"changes what is compiled: {sorted(new)[0]}"
    if name.endswith(_LINKED) and not before:
        return "would be linked beside the code in Go"
    return None


def _directives(text: str) -> set[str]:
    return set(re.findall(r"^\s*(replace|exclude|toolchain|godebug|tool)\b", text, re.MULTILINE))


def _embeds(path: str, text: str, hidden: Mapping[str, Path]) -> list[str]:
    """Return a sign if a changed file embeds the sources of hidden tests."""
    folder = PurePosixPath(path).parent
    beside = [posixpath.relpath(each, folder) for each in hidden if each.endswith("_test.go")]
    for line in re.findall(r"^//go:embed\s+(.+)$", text, re.MULTILINE):
        for pattern in line.replace("all:", "").replace('"', "").replace("`", "").split():
            if any(fnmatch.fnmatch(each, pattern) or each.startswith(f"{pattern}/") for each in beside):
                return [f"{path} embeds the hidden tests"]
    return []
