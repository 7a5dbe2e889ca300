"""Fresh knowledge: the names of a library's functions, asked for by their docstrings and examples.

::

    source archive ─► survey in a sandbox ─► questions ─► check of their own answers ─► those that hold
                                               models' answers ─► the same check ─► right or wrong

A question is a line of Python with a blank. An answer is right when the line prints with it what it prints
with the library's own name, so that an alias, or another function that does the same, is right too. Libraries
are those released before a model's cut-off, and those released after it.
"""

import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ostinato.bench.select import quiz
from ostinato.bench.select.base import Candidate, Prompt, SelectError, hash_of
from ostinato.bench.select.quiz import BLANK
from ostinato.sandbox.base import DEFAULT_LIMITS, Backend, Spec

PROGRAM = Path(str(quiz.__file__)).read_bytes()
LIMITS = replace(DEFAULT_LIMITS, memory_mb=2048, cpu_s=600, wall_s=900.0)
FOLDER = ".quiz"
NO_PACKAGES = frozenset(
    {"tests", "test", "docs", "doc", "examples", "benchmarks", "bench", "tools", "scripts"}
)
IMPORT = re.compile(r"\s*(from|import)\s")
LONGEST, LEAST_WORDS, ANSWER = 160, 4, 60
"""Characters of a question at most, words of a docstring that asks at least, characters of an answer."""
SHOWN = f"""\
Each blank {BLANK} stands for the name of a function or class of a Python library.

# Library math
>>> {BLANK}(9)
3.0
{BLANK} = math.sqrt

# Library textwrap
"Remove any common leading whitespace from every line in text."
{BLANK} = textwrap.dedent

# Library itertools
>>> list({BLANK}([1, 2], [3]))
[1, 2, 3]
{BLANK} = itertools.chain

# Library json
"Deserialize a str, bytes or bytearray instance that contains a JSON document to a Python object."
{BLANK} = json.loads

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library as its source archive has it; `released` is its date, as 2026-03-01.

    >>> Library(name="toolz", released="2026-03-01", files={"toolz/__init__.py": b""}).package
    ('', 'toolz')
    """

    name: str
    released: str
    files: Mapping[str, bytes]

    @property
    def package(self) -> tuple[str, str]:
        """The folder to import from, and the package or module. Raises SelectError when there are several."""
        found = set()
        for path in self.files:
            *folders, file = path.split("/")
            root = folders[:1] if folders[:1] in (["src"], ["lib"]) else []
            rest = folders[len(root) :]
            if len(rest) == 1 and file == "__init__.py" and rest[0] not in NO_PACKAGES:
                found.add(("/".join(root), rest[0]))
            if not rest and file.endswith(".py") and file.removesuffix(".py") == _plain(self.name):
                found.add(("/".join(root), file.removesuffix(".py")))
        named = [each for each in found if _plain(each[1]) == _plain(self.name)]
        chosen = named or sorted(found)
        if len(chosen) != 1:
            names = ", ".join(sorted(name for _, name in found)) or "none"
            raise SelectError(f"{self.name}: which package to ask about? The archive has: {names}")
        return chosen[0]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A line of Python with a blank, and the name that the library itself has there.

    >>> Question(library="toolz", released="2026-03-01", module="toolz", shown=">>> ____([1])\\n1",
    ...          setup=(), code="____([1])", answer="first").answer
    'first'
    """

    library: str
    released: str
    module: str
    shown: str
    """The part of it that a model sees."""
    setup: tuple[str, ...]
    """Lines that run before."""
    code: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshKnowledge:
    """The share of questions about libraries that a model answers."""

    questions: tuple[Question, ...]
    libraries: Mapping[str, Library]
    backend: Backend
    facts: Mapping[str, Any] = field(default_factory=dict)
    name: str = "knowledge"
    unit: str = "share"
    more_is_better: bool = True

    @property
    def weights(self) -> tuple[float, ...]:
        return (1.0,) * len(self.questions)

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(question.library for question in self.questions)

    @property
    def hash(self) -> str:
        asked = [[each.released, each.module, each.setup, each.code, each.shown] for each in self.questions]
        return hash_of([self.name, 1, SHOWN, asked])

    async def values(self, candidate: Candidate) -> tuple[float, ...]:
        prompts = [
            Prompt(
                text=f"{SHOWN}# Library {each.library}\n{each.shown}\n{BLANK} = {each.module}.",
                end="\n",
                most=ANSWER,
            )
            for each in self.questions
        ]
        answers = [
            _name(text, each)
            for text, each in zip(await candidate.complete(prompts), self.questions, strict=True)
        ]
        right = dict[int, float]()
        for name, library in self.libraries.items():
            own = [i for i, each in enumerate(self.questions) if each.library == name]
            orders = [_order(self.questions[i], answers[i]) for i in own]
            printed = await _asked(self.backend, library, "check", {"orders": orders})
            right |= {
                i: float(bool(want) and got == want) for i, (want, got) in zip(own, printed, strict=True)
            }
        return tuple(right[i] for i in range(len(answers)))


def _name(text: str, question: Question) -> str:
    """Return the dotted name that an answer begins with; anything else is no answer, and is never run."""
    found = re.match(r"\s*([A-Za-z_][\w.]*\w|[A-Za-z_])", text)
    return found[1].removeprefix(f"{question.module}.") if found else "None"


def _order(question: Question, *answers: str) -> dict[str, Any]:
    return {
        "module": question.module,
        "setup": question.setup,
        "code": question.code,
        "answers": [question.answer, *answers],
    }


async def fresh_knowledge(backend: Backend, libraries: Sequence[Library], most: int) -> FreshKnowledge:
    """Return at most `most` questions on each library, whose own answers hold.

    A library that cannot be imported alone, or that says too little of itself, is left out and named. Raises
    SelectError when no question is left.
    """
    kept, left_out, counts = list[Question](), dict[str, str](), Counter[str]()
    for library in libraries:
        try:
            found = await _asked(backend, library, "survey", {})
            drafts = sorted(_questions(library, found["objects"]), key=lambda each: _drawn(library, each))
            printed = await _asked(
                backend, library, "check", {"orders": [_order(each) for each in drafts[: 3 * most]]}
            )
        except SelectError as error:
            left_out[library.name] = str(error)
            continue
        holds = [each for each, (want, *_) in zip(drafts, printed, strict=False) if _holds(each, want)]
        counts["do not hold"] += len(printed) - len(holds)
        if not holds:
            left_out[library.name] = "no docstring or example of it makes a question"
        kept += holds[:most]
    if not kept:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise SelectError(f"no question can be made of the libraries ({reasons}): name other archives")
    asked = {each.library for each in kept}
    return FreshKnowledge(
        questions=tuple(kept),
        libraries={each.name: each for each in libraries if each.name in asked},
        backend=backend,
        facts={"libraries": len(asked), "left_out": left_out, **counts},
    )


def _holds(question: Question, printed: str) -> bool:
    """Return whether the library's own name prints something, and what the example says that it does."""
    wanted = question.shown.rpartition("\n")[2] if question.shown.startswith(">>>") else ""
    return bool(printed.strip()) and wanted in printed


def _drawn(library: Library, question: Question) -> str:
    return sha256(f"{library.name}/{question.shown}".encode()).hexdigest()


def _questions(library: Library, objects: Sequence[Mapping[str, Any]]) -> list[Question]:
    """Return one question for each object: of its first example that can be asked, else of its docstring."""
    found = []
    for each in objects:
        name, word = each["name"], re.compile(rf"\b{re.escape(each['name'])}\b", re.IGNORECASE)
        draft = {
            "library": library.name,
            "released": library.released,
            "module": each["module"],
            "answer": name,
        }
        sentence = " ".join(each["doc"].partition("\n\n")[0].split())
        examples = each["examples"]
        number = next((i for i in range(len(examples)) if _can_be_asked(name, examples[: i + 1])), None)
        if number is not None:
            source, want = (part.strip() for part in examples[number])
            code = re.sub(rf"\b(?:\w+\.)*{re.escape(name)}(?=\()", BLANK, source, count=1)
            setup = tuple(before for before, _ in examples[:number])
            lines = [*(line.strip() for line in setup if not IMPORT.match(line)), code]
            shown = "".join(f">>> {line}\n" for line in lines) + want
            found.append(Question(shown=shown, setup=setup, code=code, **draft))
        elif not word.search(sentence) and len(sentence.split()) >= LEAST_WORDS and len(sentence) <= LONGEST:
            code = f"print({BLANK}.__module__, {BLANK}.__qualname__)"
            found.append(
                Question(shown=json.dumps(sentence, ensure_ascii=False), setup=(), code=code, **draft)
            )
    return found


def _can_be_asked(name: str, examples: Sequence[tuple[str, str]]) -> bool:
    """Return whether the last example is a short line that calls the function once and prints one line.

    The lines before it are few, and do not give the name away; imports are not shown.
    """
    *before, (source, want) = examples
    lines = [line for line, _ in before if not IMPORT.match(line)]
    own = rf"\b{re.escape(name)}\b"
    if (
        len(re.findall(own, source)) != 1
        or not re.search(rf"{own}\(", source)
        or re.search(own, "".join(lines))
    ):
        return False
    one_line = all(text.count("\n") == 1 for text in (source, want, *lines))
    return one_line and "..." not in want and sum(map(len, (source, want, *lines))) <= LONGEST


async def _asked(backend: Backend, library: Library, mode: str, order: Mapping[str, Any]) -> Any:
    """Let the program do one order on a library, in a fresh sandbox. Raises SelectError when it cannot."""
    root, package = library.package
    with tempfile.TemporaryDirectory() as place:
        await asyncio.to_thread(_write, library.files, Path(place))
        sandbox = await backend.create(Spec(repo=Path(place), limits=LIMITS))
        try:
            await sandbox.write(f"{FOLDER}/quiz.py", PROGRAM)
            asked = {"root": root or ".", "package": package, **order}
            await sandbox.write(f"{FOLDER}/order.json", json.dumps(asked).encode())
            command = f"python {FOLDER}/quiz.py {mode} {FOLDER}/order.json {FOLDER}/result.json"
            done = await sandbox.exec(command)
            try:
                return json.loads(await sandbox.read(f"{FOLDER}/result.json"))
            except (FileNotFoundError, ValueError) as error:
                last = (done.output.strip().splitlines() or ["it ended without a word"])[-1]
                raise SelectError(f"{library.name}: {package} cannot be asked: {last[:200]}") from error
        finally:
            await sandbox.destroy()


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
