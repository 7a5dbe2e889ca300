"""Every page in a real Chromium, wide and narrow, light and dark: it loads whole, fits, and all can read it.

They are skipped where no Chromium is; `make test-browser` installs one, and axe-core.
"""

import asyncio
import shutil
from pathlib import Path

import pytest
from fuzz.browser import executable
from fuzz.seen_history import EXPERIMENT
from fuzz.seen_store import NOW, STORY
from tests.dashboard.install import AXE
from tests.dashboard.visit import ADDRESSES, Seen, entered, visit

from ostinato.dashboard.pages import PAGES
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.loop.dashboard.link import LoopLink
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log

CHOOSE = """
(() => {
  const field = document.querySelector("[name=source]");
  field.value = "practice";
  field.dispatchEvent(new Event("change", { bubbles: true }));
})()
"""
PRESS = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }))"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(executable() is None, reason="no Chromium is installed: run `make test-browser`"),
    pytest.mark.xdist_group("browser"),
]


def _reading(grown: Path, checkpoint: Path) -> RecordSource:
    store = Store.open(grown / "store.db")
    return RecordSource(
        store=store, lexicon=Lexicon.load(checkpoint), clock=lambda: NOW, directory=grown, loop=LoopLink()
    )


@pytest.fixture(scope="module")
def pages(grown: Path, checkpoint: Path) -> list[Seen]:
    reading = _reading(grown, checkpoint)
    try:
        return asyncio.run(visit(reading, AXE if AXE.exists() else None))
    finally:
        reading.store.close()


def test_every_page_is_visited() -> None:
    visited = {address.partition("?")[0] for address in ADDRESSES}
    assert {page.address for page in PAGES} <= visited


def test_nothing_fails_and_nothing_complains(pages: list[Seen]) -> None:
    said = [(seen.address, seen.complaints) for seen in pages if seen.complaints]
    assert {address for address, _ in said} == {"/nowhere"}  # an address without a page


def test_every_page_fits_its_window_and_no_text_lies_on_another(pages: list[Seen]) -> None:
    assert not [(seen.address, seen.width, seen.too_wide) for seen in pages if seen.too_wide > 0]
    assert not [(seen.address, seen.width, seen.overlaps) for seen in pages if seen.overlaps]


def test_the_whole_menu_can_be_reached(pages: list[Seen]) -> None:
    assert not [(seen.address, seen.width, seen.unreachable) for seen in pages if seen.unreachable]


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run `make test-browser`")
def test_every_page_passes_wcag_aa(pages: list[Seen]) -> None:
    assert not [(seen.address, seen.width, seen.violations) for seen in pages if seen.violations]


def test_filters_keys_and_buttons_work_under_the_strict_policy(
    grown: Path, checkpoint: Path, tmp_path: Path
) -> None:
    # A button writes into the record, which other tests read: it gets one of its own.
    shutil.copytree(grown, tmp_path / "run")
    reading = _reading(tmp_path / "run", checkpoint)

    async def use() -> None:
        async with entered(reading) as (tab, root):
            await tab.go(f"{root}/sessions")
            await tab.evaluate(CHOOSE)
            await _until(tab, "location.search.includes('source=practice')")
            shown = "[...document.querySelectorAll('tbody .source')].map(e => e.textContent)"
            assert set(await tab.evaluate(shown)) == {"practice"}
            await tab.go(f"{root}/session?id={STORY}")
            await tab.evaluate(PRESS)
            assert await tab.evaluate("document.activeElement.id") == "turn-0"
            await tab.go(f"{root}/experiment?id={EXPERIMENT}")
            words = await tab.evaluate("document.querySelector('[name=confirmed]').placeholder")
            await tab.evaluate(f"document.querySelector('[name=confirmed]').value = {words!r}")
            await tab.evaluate("document.querySelector('[name=reason]').value = 'tried in a browser'")
            await tab.clicked_away("document.querySelector('button[value=pause]').click()")
            assert "tried in a browser" in await tab.evaluate("document.querySelector('.trail').innerText")
            assert not tab.complaints

    try:
        asyncio.run(use())
        assert cycle_log(reading.store)[-1].action is CycleAction.PAUSE
    finally:
        reading.store.close()


async def _until(tab: object, script: str) -> None:
    for _ in range(400):
        if await tab.evaluate(script):  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never true: {script}")
