"""Covers bench/select/quiz.py too: questions on a library, and answers that are checked by running it."""

from collections.abc import AsyncIterator, Sequence

import pytest

from ostinato.bench.select.base import Prompt, SelectError, Window
from ostinato.bench.select.knowledge import FreshKnowledge, Library, fresh_knowledge
from ostinato.bench.select.quiz import BLANK
from ostinato.model.tokenizer import Tokenizer
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Backend

SOURCE = '''
import os

def second(items):
    """Give an item.

    >>> second([4, 5])
    5
    """
    return items[1]

item_at_one = second

def wrong(x):
    """Be wrong.

    >>> wrong(1)
    7
    """
    return x

def fold_lines(text):
    """Join all rows of a text into one."""
    return " ".join(text.split())

def told(x):
    """Return what told returns and nothing more."""
    return x

def _hidden(x):
    """Return something that is nobody's business."""
'''
LIBRARY = Library(name="my-lib", released="2026-03-01", files={"src/my_lib/__init__.py": SOURCE.encode()})


class Answering:
    """A model whose answers to the questions are given."""

    name, tokenizer, context, read, sampled = "given", Tokenizer.train([""], 259), 10_000, 0, 0

    def __init__(self, *answers: str) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def complete(self, prompts: Sequence[Prompt]) -> list[str]:
        self.asked = [prompt.text for prompt in prompts]
        return list(self._answers)

    async def logprobs(self, windows: Sequence[Window]) -> list[Sequence[float]]:
        raise NotImplementedError


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    backend = ProcessBackend()
    yield backend
    await backend.aclose()


@pytest.fixture
async def knowledge(backend: Backend) -> FreshKnowledge:
    return await fresh_knowledge(backend, [LIBRARY], 9)


async def test_what_holds_becomes_a_question_and_what_gives_itself_away_none(
    knowledge: FreshKnowledge,
) -> None:
    assert {each.answer: each.shown for each in knowledge.questions} == {
        "second": f">>> {BLANK}([4, 5])\n5",
        "fold_lines": '"Join all rows of a text into one."',
    }
    assert knowledge.facts == {"libraries": 1, "left_out": {}, "do not hold": 1}
    assert set(knowledge.clusters) == {"my-lib"} and len(knowledge.hash) == 32


async def test_an_answer_is_right_when_it_does_the_same(knowledge: FreshKnowledge) -> None:
    """An alias is right; a function that ends the process, a built-in one and other text are wrong."""
    order = [each.answer for each in knowledge.questions]
    model = Answering(*order)
    assert await knowledge.values(model) == (1.0, 1.0)
    assert all(text.endswith(f"{BLANK} = my_lib.") and "alias" not in text for text in model.asked)
    for answer in ("item_at_one", "my_lib.second", "second(items)"):
        given = [answer if each == "second" else "" for each in order]
        assert sum(await knowledge.values(Answering(*given))) == 1.0, answer
    for answer in ("os._exit", "max", "__import__('os')", "", "second second"[7:] + "s", "1"):
        assert sum(await knowledge.values(Answering(answer, answer))) == 0.0, answer


async def test_a_library_that_cannot_be_asked_is_named(backend: Backend) -> None:
    broken = Library(name="broken", released="2026-03-01", files={"broken.py": b"import not_there_at_all\n"})
    silent = Library(name="silent", released="2026-03-01", files={"silent.py": b"def f(): pass\n"})
    two = Library(name="two", released="2026-03-01", files={"a/__init__.py": b"", "b/__init__.py": b""})
    found = await fresh_knowledge(backend, [broken, LIBRARY, silent, two], 1)
    assert len(found.questions) == 1
    left_out = found.facts["left_out"]
    assert "not_there_at_all" in left_out["broken"] and "no docstring" in left_out["silent"]
    assert "which package to ask about? The archive has: a, b" in left_out["two"]
    with pytest.raises(SelectError, match="no question can be made of the libraries"):
        await fresh_knowledge(backend, [broken], 1)
