"""Who answers when the agent asks: a person at a terminal, a script, or nobody."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from rich.console import Console

from ostinato.harness.errors import UserAborted


class User(Protocol):
    async def answer(self, question: str) -> str:
        """The user's words. Raises UserAborted when they decline."""
        ...


class SilentUser:
    """Nobody is there: says so, and leaves the decision to the agent."""

    async def answer(self, question: str) -> str:
        return "no answer, decide yourself"


class ScriptedUser:
    """Gives prepared answers in order and keeps the questions; declines when they run out."""

    def __init__(self, answers: Iterable[str]) -> None:
        self._answers = deque(answers)
        self.questions: list[str] = []

    async def answer(self, question: str) -> str:
        self.questions.append(question)
        if not self._answers:
            raise UserAborted("the user did not answer")
        return self._answers.popleft()


class TerminalUser:
    """A person at the terminal. An empty line or end of input declines."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def answer(self, question: str) -> str:
        self._console.print(f"\n? {question}", style="bold", markup=False)
        try:
            text = await asyncio.to_thread(self._console.input, "> ")
        except EOFError:
            text = ""
        if not text.strip():
            raise UserAborted("the user did not answer")
        return text.strip()
