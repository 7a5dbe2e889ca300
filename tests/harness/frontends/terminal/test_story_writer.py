"""The story on a small screen: messages, outputs, results and edits, each also as text."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult

from ostinato.harness.conversation import Edit
from ostinato.harness.errors import ToolTimeout
from ostinato.harness.execute import ToolResult
from ostinato.harness.frontends.terminal.story import Story
from ostinato.harness.frontends.terminal.story_writer import LONG_DIFF, MOST_LINES, StoryWriter

ERROR = ToolTimeout("it took too long")


class Alone(App[None]):
    """A screen with nothing but a story."""

    def compose(self) -> ComposeResult:
        yield Story(id="story")


@asynccontextmanager
async def told() -> AsyncIterator[StoryWriter]:
    app = Alone()
    async with app.run_test(size=(60, 40)) as pilot:
        writer = StoryWriter(dark=True)
        writer.story = app.query_one(Story)
        await pilot.pause()
        yield writer


def entries(writer: StoryWriter) -> list[str]:
    """The entries as they stand on the screen."""
    return ["\n".join(strip.text.rstrip() for strip in entry.strips) for entry in writer.story.entries]


async def test_a_message_grows_and_a_call_ends_it() -> None:
    async with told() as writer:
        for piece in ("It is ", "**bo", "ld**"):
            writer.text(piece)
        writer.call("● read calc.py")
        writer.text("next")
        writer.ended()
        assert writer.transcript == ["It is **bold**", "● read calc.py", "next"]
        assert entries(writer) == ["It is bold", "● read calc.py", "next"]


async def test_an_output_that_was_shown_while_it_ran_is_not_repeated() -> None:
    async with told() as writer:
        writer.output("one\r\n")
        writer.output("two\n")
        writer.result(ToolResult(text="one\ntwo\n"))
        assert writer.transcript == ["one\ntwo\n"] and entries(writer) == ["one\ntwo"]


async def test_an_error_is_shown_beside_the_output() -> None:
    async with told() as writer:
        writer.output("one\n")
        writer.result(ToolResult(text="it took too long", error=ERROR))
        assert entries(writer) == ["one", "  it took too long"]


async def test_a_long_output_shows_its_end_and_opens() -> None:
    async with told() as writer:
        writer.output("".join(f"{number}\n" for number in range(30)))
        writer.ended()
        assert entries(writer)[0].split("\n") == [
            "… 18 lines before (ctrl+o opens)",
            *map(str, range(18, 30)),
        ]
        writer.story.toggle_newest()
        assert entries(writer)[0].split("\n") == [str(number) for number in range(30)]


async def test_the_log_has_what_is_beyond_the_most_lines() -> None:
    async with told() as writer:
        writer.output("x\n" * (MOST_LINES + 5))
        writer.ended()
        writer.story.toggle_newest()
        assert entries(writer)[0].endswith("\nx\n… 5 more lines are in the session's log")


async def test_a_long_result_shows_its_beginning_and_opens() -> None:
    async with told() as writer:
        writer.result(ToolResult(text="\n".join(map(str, range(20)))))
        assert entries(writer)[0].split("\n")[-2:] == ["  11", "  … 8 more lines (ctrl+o opens)"]
        writer.story.toggle_newest()
        assert entries(writer)[0].split("\n")[-1] == "  19"


@pytest.mark.parametrize("lines", [1, LONG_DIFF + 1])
async def test_only_a_long_edit_is_folded(lines: int) -> None:
    async with told() as writer:
        after = "".join(f"x{number} = {number}\n" for number in range(lines))
        writer.edited(Edit(path="new.py", before=None, after=after.encode()))
        assert writer.transcript == ["  changed new.py"]
        is_folded = lines > 1
        assert ("ctrl+o opens" in entries(writer)[0]) == is_folded
        assert ("x0 = 0" in entries(writer)[0]) != is_folded
        writer.story.toggle_newest()
        assert f"x{lines - 1} = {lines - 1}" in entries(writer)[0]


async def test_a_request_that_changed_nothing_adds_nothing() -> None:
    async with told() as writer:
        writer.changed("")
        assert not writer.transcript and not writer.story.entries


async def test_no_text_can_move_the_cursor() -> None:
    async with told() as writer:
        evil = "a\x1b[2Jb\x9b0c"
        writer.asked(evil)
        writer.say(evil)
        writer.answered(evil)
        writer.text(evil)
        writer.output(evil)
        writer.result(ToolResult(text=evil, error=ERROR))
        writer.edited(Edit(path=evil, before=b"", after=evil.encode()))
        writer.ended()
        shown = entries(writer)
        assert len(shown) == 7 and not {"\x1b", "\x9b"} & set("".join(shown))
        assert all("\\x1b[2J" in one for one in shown)
