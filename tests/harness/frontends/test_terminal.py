"""The full screen, driven by Textual's pilot: a real gateway, a scripted model, a real repository."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.harness.story import STORY, call_text
from textual.pilot import Pilot
from textual.widgets import Input, Static

from ostinato.harness.frontends.terminal import CodeApp
from ostinato.harness.session_log import Sessions
from ostinato.harness.workspace.workbench import Options
from ostinato.store import Store
from ostinato.types import Ending


class Person:
    """Types and watches."""

    def __init__(self, app: CodeApp, pilot: Pilot[int]) -> None:
        self.app = app
        self._pilot = pilot
        self._seen = 0

    async def until(self, done: Callable[[], bool] | str) -> None:
        """Waits for a text in the story after what was waited for before, or for a condition."""
        text = done if isinstance(done, str) else ""

        def found() -> bool:
            return text in "\n".join(self.app.transcript[self._seen :]) if text else bool(done())  # type: ignore[operator]

        while not found():
            assert self.app.is_running, self.app.transcript
            await self._pilot.pause(0.02)
        while text and self._seen < len(self.app.transcript) and text not in self.app.transcript[self._seen]:
            self._seen += 1
        self._seen += bool(text)

    async def type(self, text: str) -> None:
        self.app.query_one("#line", Input).value = text
        await self._pilot.press("enter")

    async def press(self, key: str) -> None:
        await self._pilot.press(key)

    def shown(self, name: str) -> str:
        widget = self.app.query_one(f"#{name}", Static)
        return str(widget.render()) if widget.display else ""

    async def rests(self) -> None:
        await self.until(lambda: self.shown("status").endswith("tokens"))


@pytest.fixture
def script() -> list[str]:
    return []


@pytest.fixture
def sit_down(repo: Path, gateway: str, tmp_path: Path):
    @asynccontextmanager
    async def sit_down(*, directory: Path = repo, prompt: str | None = None) -> AsyncIterator[Person]:
        sessions = Sessions(directory=tmp_path / "state" / "sessions")
        app = CodeApp(Options(directory=directory, url=gateway, key="key", sessions=sessions), prompt)
        try:
            async with app.run_test(size=(100, 40)) as pilot:
                yield Person(app, pilot)
        finally:
            await app.close()

    return sit_down


async def test_a_conversation_on_the_screen(sit_down, script: list[str], repo: Path, store: Store) -> None:
    script += STORY
    async with sit_down(prompt="calc.py is off") as person:
        await person.until("> calc.py is off")
        await person.until("I look first.")
        await person.until("● read calc.py")
        await person.until("  changed calc.py")
        await person.until("alpha adds now")
        await person.until("+    return a + b")
        await person.rests()
        script += [
            call_text("ask_user", question="which?"),
            call_text("bash", command="touch made && ls made"),
            call_text("bash", command="touch made"),
            "well",
        ]
        await person.type("and now?")
        await person.until(lambda: "which?" in person.shown("question"))
        await person.type("this one")
        await person.until(lambda: "allow bash: touch made" in person.shown("question"))
        assert "waits for your answer" in person.shown("status")
        await person.type("always? no, are you sure")
        await person.until(lambda: "Nothing was permitted" in person.shown("question"))
        assert not (repo / "made").exists()
        assert "then Enter" in person.shown("question")
        await person.type("a")
        await person.until("well")
        assert not person.shown("question")
        await person.rests()
        assert (repo / "made").exists()
        await person.type("/undo")
        await person.until("restored made")
        await person.type("/undo")
        await person.until("restored calc.py")
        assert "return a - b" in (repo / "calc.py").read_text()
        await person.type("/quit")
        await person.until(lambda: not person.app.is_running)
    (session,) = store.sessions()
    assert session.ending is Ending.FINISHED


async def test_ctrl_c_on_the_screen(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.until("What shall I do?")
        await person.rests()
        script.append(call_text("bash", command="sleep 600"))
        await person.type("wait")
        await person.until(lambda: "sleep 600" in person.shown("question"))
        await person.press("ctrl+c")
        await person.until("interrupted; the session goes on")
        assert not person.shown("question")
        script.append("here I am")
        await person.type("still there?")
        await person.until("here I am")
        await person.rests()
        await person.press("ctrl+c")
        await person.until(lambda: not person.app.is_running)


async def test_lines_typed_while_it_works_wait(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.rests()
        await person.type("think")
        await person.until("> think")
        await person.type("hurry")
        assert person.app.query_one("#line", Input).value == "hurry"
        assert "busy" in person.shown("status")
        await person.press("ctrl+c")
        await person.until("interrupted")


async def test_where_there_is_no_repository(sit_down, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    async with sit_down(directory=tmp_path / "plain") as person:
        for _ in range(500):
            if not person.app.is_running:
                break
            await asyncio.sleep(0.01)
        assert person.app.return_code == 2
