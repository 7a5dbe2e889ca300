"""The full screen, driven by Textual's pilot: a real gateway, a scripted model, a real repository.

Covers harness/frontends/terminal/app.py, harness/frontends/terminal/line.py,
harness/frontends/terminal/asking.py, harness/workspace/served.py,
harness/frontends/terminal/completion.py, harness/frontends/terminal/markdown.py,
harness/frontends/terminal/earlier.py, harness/frontends/terminal/look.py and harness/frontends/replay.py.
"""

import asyncio
import math
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.harness.story import STORY, call_text
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from ostinato.harness.frontends.terminal import asking
from ostinato.harness.frontends.terminal.app import CodeApp
from ostinato.harness.frontends.terminal.line import Choices, PromptLine
from ostinato.harness.frontends.terminal.story import Entry, Story
from ostinato.harness.session_log import Sessions
from ostinato.harness.workspace.workbench import Options
from ostinato.store import Store
from ostinato.types import Ending

PATIENCE = 3_000
"""Looks at the screen, 20 ms apart, after which a test gives up and says what it saw."""


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

        for _ in range(PATIENCE):
            if found():
                break
            assert self.app.is_running, self.app.transcript
            await self._pilot.pause(0.02)
        else:
            state = (self.line.text, self.shown("question"), self.shown("status"), self.shown("queue"))
            raise AssertionError(f"it never came: {state}, {self.app.transcript}")
        while text and self._seen < len(self.app.transcript) and text not in self.app.transcript[self._seen]:
            self._seen += 1
        self._seen += bool(text)

    async def type(self, text: str) -> None:
        self.line.put(text)
        await self._pilot.press("enter")

    def submit_and_begin(self, *texts: str, draft: str) -> None:
        """Sends texts and begins the next in one step, so that no question can come between."""
        for text in texts:
            self.line.post_message(PromptLine.Submitted(text))
        self.line.put(draft)

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def press_when_shown(self, *keys: str) -> None:
        """Press keys once the question can be read."""
        await self.until(lambda: self.app.query_one(asking.Asking)._readable_at < math.inf)
        await self._pilot.press(*keys)

    @property
    def line(self) -> PromptLine:
        return self.app.query_one("#line", PromptLine)

    @property
    def screen(self) -> str:
        """Return what stands on the screen, line by line."""
        story = self.app.query_one("#story", Story)
        return "\n".join(story.render_line(y).text.rstrip() for y in range(story.size.height))

    def shown(self, name: str) -> str:
        widget = self.app.query_one(f"#{name}", Static)
        return str(widget.render()) if widget.display and widget.parent.display else ""

    async def rests(self) -> None:
        await self.until(lambda: re.search(r"tokens( · took \d+ s)?$", self.shown("status")) is not None)


@pytest.fixture
def script() -> list[str]:
    return []


@pytest.fixture
def sit_down(repo: Path, gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0.0)

    @asynccontextmanager
    async def sit_down(
        *, directory: Path = repo, prompt: str | None = None, size: tuple[int, int] = (100, 40)
    ) -> AsyncIterator[Person]:
        sessions = Sessions(directory=tmp_path / "state" / "sessions")
        app = CodeApp(Options(directory=directory, url=gateway, key="key", sessions=sessions), prompt)
        try:
            async with app.run_test(size=size) as pilot:
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
            call_text("ask_user", question="how?", options=["mean", "median"]),
            call_text("bash", command="touch made && ls made"),
            call_text("bash", command="touch made"),
            "well",
        ]
        await person.type("and now?")
        await person.until(lambda: "which?" in person.shown("question"))
        await person.type("this one")
        await person.until(lambda: "  2 median" in person.shown("question"))
        await person.press_when_shown("down", "down")
        await person.until(lambda: "› 2 median" in person.shown("question"))
        await person.press("up", "enter")
        await person.until("> mean")
        await person.until(lambda: "allow bash: touch made" in person.shown("question"))
        assert "waits for your answer" in person.shown("status")
        await person.type("always? no, are you sure")
        await person.until(lambda: "Nothing was permitted" in person.shown("question"))
        assert not (repo / "made").exists()
        await person.press_when_shown("a")
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
        await person.until(lambda: re.search(r"took \d+ s$", person.shown("status")) is not None)
        await person.type("/help")
        await person.until(lambda: person.shown("status").endswith("tokens"))
        await person.press("ctrl+c")
        await person.until(lambda: not person.app.is_running)


async def test_what_is_typed_while_it_works_waits_in_a_queue(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.rests()
        script.append(call_text("ask_user", question="go on?"))
        await person.type("think")
        await person.until("> think")
        await person.until(lambda: "go on?" in person.shown("question"))
        script += ["I went on", "and then this"]
        await person.type("yes")
        await person.type("and then?")
        await person.until("I went on")
        await person.until("> and then?")
        await person.until("and then this")
        await person.rests()
        script.append(call_text("ask_user", question="once more?"))
        await person.type("again")
        await person.until(lambda: "once more?" in person.shown("question"))
        assert not person.shown("queue")


async def test_an_interrupt_gives_back_what_waited(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.rests()
        await person.type("think")
        await person.until("> think")
        await person.type("hurry")
        await person.type("please")
        assert "waits: hurry" in person.shown("queue") and "waits: please" in person.shown("queue")
        await person.press("escape")
        await person.until("interrupted")
        assert person.line.text == "hurry\nplease" and not person.shown("queue")


async def test_an_interrupted_question_loses_nothing_that_was_typed(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.rests()
        script.append(call_text("ask_user", question="which?"))
        person.submit_and_begin("think", "hurry", draft="half")
        await person.until(lambda: "which?" in person.shown("question"))
        assert person.line.text == ""
        await person.press("escape")
        await person.until("interrupted")
        assert person.line.text == "hurry\nhalf" and not person.shown("queue")


async def test_half_a_line_answers_no_question(sit_down, script: list[str], repo: Path) -> None:
    async with sit_down() as person:
        await person.rests()
        script += [call_text("bash", command="touch made"), "well"]
        person.submit_and_begin("go", draft="a")
        await person.until(lambda: "touch made" in person.shown("question"))
        assert person.line.text == ""
        await person.press("enter")
        await person.until("well")
        assert person.line.text == "a" and not (repo / "made").exists()


async def test_a_name_that_is_not_utf8_is_completed_shown_and_restored(
    sit_down, script: list[str], repo: Path
) -> None:
    os.mkdir(folder := os.fsencode(repo) + b"/d\xe9")
    Path(os.fsdecode(folder + b"/\xff")).write_text("x = 1\n")
    async with sit_down() as person:
        await person.rests()
        person.line.put("look at ")
        await person.press("@", "d", "\\")
        assert person.app.query_one(Choices).found.words == ("d\\xe9/\\xff",)  # type: ignore[union-attr]
        await person.press("tab")
        script += [call_text("edit", path="d\\xe9/\\xff", old_string="1", new_string="2"), "done"]
        await person.press("enter")
        await person.until("  changed d\\xe9/\\xff")
        await person.until("done")
        await person.rests()
        await person.type("/undo")
        await person.until("restored d\\xe9/\\xff")


async def test_what_is_typed_when_a_question_comes_answers_nothing(
    sit_down, script: list[str], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sit_down() as person:
        monkeypatch.setattr(asking, "SETTLE_S", math.inf)
        await person.rests()
        script += [call_text("bash", command="touch made"), "well"]
        await person.type("go")
        await person.until(lambda: "touch made" in person.shown("question"))
        await person.press(*"yes please", "enter")
        await person.until(lambda: "Nothing was permitted" in person.shown("question"))
        assert not (repo / "made").exists()


async def test_a_no_carries_words_and_the_status_says_what_runs(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.rests()
        script += [
            call_text("bash", command="python3 -m unittest"),
            call_text("bash", command="echo begun; sleep 600"),
        ]
        await person.type("go")
        await person.until(lambda: "unittest" in person.shown("question"))
        await person.press_when_shown("tab", *"use pytest", "enter")
        await person.until("not permitted by the user: use pytest")
        await person.until(lambda: "sleep 600" in person.shown("question"))
        await person.press_when_shown("y")
        await person.until("begun")
        assert "runs bash" in person.shown("status") and "waits" not in person.shown("status")
        await person.press("escape")
        await person.until("interrupted")


async def test_model_version_and_branch_stand_on_the_screen(sit_down, script: list[str], repo: Path) -> None:
    async with sit_down() as person:
        await person.rests()
        assert str(person.line.border_title) == "ostinato, version 1 · main"
        script += [call_text("bash", command="git checkout -q -b red"), "well"]
        await person.type("go")
        await person.until(lambda: "checkout" in person.shown("question"))
        await person.press_when_shown("y")
        await person.until("well")
        await person.rests()
        assert str(person.line.border_title) == "ostinato, version 1 · red"
        await person.type("/model")
        await person.until("ostinato, version 1")
        await person.type("/model other")
        await person.until("unknown model 'other', use 'ostinato'")
        assert person.app.farewell.startswith("`ostinato code --resume ")


async def test_nothing_is_permitted_before_its_end_was_shown(sit_down, script: list[str], repo: Path) -> None:
    command = "cat > made <<'END'\n" + "".join(f"line {n}\n" for n in range(43)) + "END\ntouch last"
    async with sit_down() as person:
        await person.rests()
        script += [call_text("bash", command=command), "well"]
        person.submit_and_begin("go", "y", draft="")
        await person.until(lambda: "touch last" in person.shown("question"))
        asking = person.app.query_one("#asking")
        await person.until(lambda: asking.max_scroll_y > 0)
        for _ in range(9):
            await person.type("y")
            if asking.scroll_offset.y == asking.max_scroll_y:
                break
            await person.until(lambda: "PageDown" in str(asking.border_subtitle))
            assert not (repo / "made").exists() and person.shown("question")
            await person.press("pagedown")
        await person.until("well")
        assert (repo / "last").exists()


async def test_lines_history_and_completion(sit_down, script: list[str], repo: Path) -> None:
    async with sit_down() as person:
        await person.rests()
        script += ["one", "two"]
        await person.press("a", "ctrl+j", "b", "\\", "enter", "c", "shift+enter")
        assert person.line.text == "a\nb\nc\n"
        await person.press("backspace", "enter")
        await person.until("> a\nb\nc")
        await person.until("one")
        await person.rests()
        await person.type("next")
        await person.until("two")
        await person.rests()
        await person.press("x", "up")
        assert person.line.text == "next"
        await person.press("up")
        assert person.line.text == "a\nb\nc"
        await person.press("down", "down")
        assert person.line.text == "x"
        person.line.put("")
        await person.press("/", "d")
        assert person.app.query_one(Choices).found is not None
        await person.press("tab")
        assert person.line.text == "/diff "
        person.line.put("look at ")
        await person.press("@", "u", "t")
        assert person.app.query_one(Choices).found.words == ("pkg/util.py",)  # type: ignore[union-attr]
        await person.press("enter")
        assert person.line.text == "look at pkg/util.py "


async def test_markdown_diffs_and_folding(sit_down, script: list[str], repo: Path) -> None:
    async with sit_down() as person:
        await person.rests()
        script += [
            "# A title\n\nIt is **bold**, and <b>html</b> stays.\n\n```python\nx = 1\n```\n"
            + call_text("edit", path="calc.py", old_string="a - b", new_string="a + b"),
            call_text("bash", command="seq 1 60"),
            "done",
        ]
        await person.type("go")
        await person.until(lambda: "seq 1 60" in person.shown("question"))
        await person.until(lambda: "2 +     return a + b" in person.screen)
        assert "It is bold, and <b>html</b> stays." in person.screen and "**" not in person.screen
        await person.type("y")
        await person.until("done")
        await person.rests()
        assert "… 48 lines before (ctrl+o opens)" in person.screen
        assert "calc.py +1 −1 (ctrl+o opens)" in person.screen
        await person.press("ctrl+o")
        await person.until(lambda: "return a + b" in person.screen.partition("done")[2])


async def test_a_session_is_chosen_and_shown_again(sit_down, script: list[str]) -> None:
    async with sit_down() as person:
        await person.rests()
        script.append("the first answer")
        await person.type("the first question")
        await person.until("the first answer")
        await person.rests()
        await person.type("/new")
        await person.until("a new session")
        await person.rests()
        await person.type("/resume")
        await person.until(lambda: person.app.query_one("#sessions", OptionList).display)
        await person.press("escape")
        assert not person.app.query_one("#sessions", OptionList).display
        await person.rests()
        await person.type("/resume")
        await person.until(lambda: person.app.query_one("#sessions", OptionList).display)
        await person.press("enter")
        await person.until("you last said: the first question")
        await person.until(lambda: "the first answer" in person.screen)
        await person.type("/resume nonsense")
        await person.until("no session nonsense")


@pytest.mark.parametrize("size", [(24, 8), (40, 12), (240, 70)])
async def test_narrow_and_huge_windows(sit_down, script: list[str], size: tuple[int, int]) -> None:
    async with sit_down(size=size) as person:
        await person.rests()
        script += [
            call_text("edit", path="calc.py", old_string="a - b", new_string="a + b"),
            "all is well " * 20,
        ]
        await person.type("a question that is longer than the window is wide")
        await person.until("all is well")
        await person.rests()
        lines = person.screen.split("\n")
        assert max(map(len, lines)) <= size[0] and "all is well" in person.screen
        assert ("session" in person.shown("status")) == (size[0] >= 60)


async def test_the_end_stays_in_sight_though_the_prompt_grows_over_it(sit_down) -> None:
    async with sit_down(size=(24, 10)) as person:
        await person.rests()
        story = person.app.query_one("#story", Story)
        height = story.size.height
        person.line.put("a draft that takes four lines of a window that is this narrow, at least")
        await person.until(lambda: story.size.height <= height - 2)
        await person.until(lambda: story.scroll_offset.y == story.max_scroll_y > 0)
        await person.press("pageup")
        await person.until(lambda: story.scroll_offset.y < story.max_scroll_y)
        looked_at = story.scroll_offset.y
        story.add(Entry(whole="an entry below what somebody reads"))
        await person.press("a")
        assert story.scroll_offset.y == looked_at


@pytest.mark.parametrize("is_grey", [True, False])
async def test_no_color_leaves_shades_of_grey(
    sit_down, script: list[str], monkeypatch: pytest.MonkeyPatch, is_grey: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if is_grey:
        monkeypatch.setenv("NO_COLOR", "1")
    async with sit_down() as person:
        await person.rests()
        script += [call_text("edit", path="calc.py", old_string="a - b", new_string="a + b"), "done"]
        await person.type("go")
        await person.until("done")
        await person.rests()
        assert "2 +     return a + b" in person.screen
        drawn = re.sub("<circle[^>]*>", "", person.app.export_screenshot())  # the frame's three buttons
    colours = {tuple(bytes.fromhex(found)) for found in re.findall(r"fill(?:: ?|=\")#([0-9a-f]{6})", drawn)}
    spread = max(max(colour) - min(colour) for colour in colours)
    assert spread < 16 if is_grey else spread > 64


async def test_where_there_is_no_repository(sit_down, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    async with sit_down(directory=tmp_path / "plain") as person:
        for _ in range(500):
            if not person.app.is_running:
                break
            await asyncio.sleep(0.01)
        assert person.app.return_code == 2
