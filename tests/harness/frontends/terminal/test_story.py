"""Entries on a small screen: scrolling, folding, another width, and more than are rendered in one go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.text import Text
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from ostinato.harness.frontends.terminal.story import Entry, Story


class Alone(App[None]):
    """A screen with nothing but a story."""

    def compose(self) -> ComposeResult:
        yield Story(id="story")


@asynccontextmanager
async def shown(size: tuple[int, int] = (30, 10)) -> AsyncIterator[tuple[Story, Pilot[None]]]:
    app = Alone()
    async with app.run_test(size=size) as pilot:
        yield app.query_one(Story), pilot


def lines(story: Story) -> list[str]:
    return [story.render_line(y).text.rstrip() for y in range(story.size.height)]


def entry(text: str, folded: str | None = None) -> Entry:
    return Entry(whole=Text(text), folded=None if folded is None else Text(folded))


async def test_the_end_stays_in_sight_unless_somebody_scrolled_up() -> None:
    async with shown() as (story, pilot):
        for number in range(20):
            story.add(entry(f"line {number}"))
        await pilot.pause()
        assert lines(story) == [f"line {number}" for number in range(10, 20)]
        story.scroll_to(y=3, animate=False, immediate=True)
        await pilot.pause()
        story.add(entry("line 20"))
        await pilot.pause()
        assert lines(story)[0] == "line 3"
        story.scroll_end(animate=False, immediate=True)
        await pilot.pause()
        assert lines(story)[-1] == "line 20"


async def test_the_newest_that_can_be_folded_opens_and_what_is_below_moves() -> None:
    async with shown() as (story, pilot):
        story.add(entry("a\nb", "older"))
        story.add(entry("c\nd\ne", "newer"))
        story.add(entry("end"))
        await pilot.pause()
        assert lines(story)[:3] == ["older", "newer", "end"]
        story.toggle_newest()
        assert lines(story)[:5] == ["older", "c", "d", "e", "end"]
        story.toggle_newest()
        await pilot.click(story, offset=(1, 0))
        assert lines(story)[:4] == ["a", "b", "newer", "end"]
        await pilot.click(story, offset=(1, 3))
        await pilot.click(story, offset=(1, 8))
        assert lines(story)[:4] == ["a", "b", "newer", "end"]


async def test_another_width_breaks_the_lines_again() -> None:
    async with shown() as (story, pilot):
        story.add(entry("one two three four"))
        await pilot.pause()
        assert lines(story)[0] == "one two three four"
        await pilot.resize_terminal(12, 10)
        await pilot.pause()
        assert lines(story)[:2] == ["one two", "three four"]


async def test_what_is_added_for_later_is_rendered_whole_in_its_order() -> None:
    most = 600  # more than one slice of time renders
    async with shown() as (story, pilot):
        for number in range(most):
            story.add(entry(f"{number}\nof {most}"), later=True)
        while not all(one.width for one in story.entries):
            await pilot.pause()
        assert story.virtual_size.height == 2 * most
        assert lines(story)[-2:] == [str(most - 1), f"of {most}"]
        story.scroll_home(animate=False, immediate=True)
        await pilot.pause()
        assert lines(story)[:4] == ["0", f"of {most}", "1", f"of {most}"]
