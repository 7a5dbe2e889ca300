"""A visit of a real browser to the pages of a record: for its tests and for the pictures of the docs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.browser import Tab, browser, executable
from fuzz.seen_history import EXPERIMENT, FIRST, STEPS
from fuzz.seen_store import STORY

from ostinato.dashboard.access import Doorkeeper
from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.server import entrance, server_of
from ostinato.web.protocol import listen

ADDRESSES = (
    "/",
    "/versions",
    f"/version?version={FIRST + STEPS - 1}",
    "/version?version=7",
    "/experiments",
    f"/experiment?id={EXPERIMENT}",
    "/experiment?id=e1",
    "/sessions",
    f"/session?id={STORY}",
    "/training",
    "/group?id=group/practice",
    "/rewards",
    "/fleet",
    "/accounts",
    "/session?id=gone-1",
    "/nowhere",
)
"""One address for each page, and for each that looks different with another subject."""
OVERLAPS = """
(() => {
  const shown = [];
  for (const each of document.querySelectorAll("main *, header *, footer *")) {
    const own = [...each.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !each.checkVisibility({ visibilityProperty: true })) continue;
    if (each.closest("title, option, summary, pre, .tokens, svg.graph")) continue;
    const range = document.createRange();
    for (const node of each.childNodes) {
      if (node.nodeType !== 3 || !node.textContent.trim()) continue;
      range.selectNodeContents(node);
      for (const box of range.getClientRects()) if (box.width > 1 && box.height > 1) shown.push([each, box]);
    }
  }
  const found = [];
  for (let a = 0; a < shown.length; a++) for (let b = a + 1; b < shown.length; b++) {
    const [one, r] = shown[a], [two, s] = shown[b];
    const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
    const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
    const words = (each) => each.textContent.trim().slice(0, 30);
    if (wide > 2 && high > 5) found.push(`${words(one)} | ${words(two)}`);
  }
  return found.slice(0, 8);
})()
"""
"""The texts that lie over each other."""
UNREACHABLE = """
[...document.querySelectorAll("header a")].filter((each) => {
  const box = each.getBoundingClientRect();
  return !each.closest(".skip") && (box.width < 1 || box.left < 0 || box.right > innerWidth);
}).map((each) => each.textContent)
"""
"""The entries of the menu that lie outside of the window."""
EXAMINE = """
(async () => {
  const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
  const done = await axe.run(document, { runOnly: rules });
  const places = (each) => each.nodes.slice(0, 3).map((node) => node.target.join(" ")).join("; ");
  return done.violations.map((each) => `${each.id}: ${places(each)}`);
})()
"""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the browser saw of one page at one width."""

    address: str
    width: int
    complaints: list[str] = field(default_factory=list)
    too_wide: int = 0
    """CSS pixels by which the page is wider than the window."""
    overlaps: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """Rules of WCAG AA that axe-core found broken."""


@asynccontextmanager
async def entered(reading: RecordSource) -> AsyncIterator[tuple[Tab, str]]:
    """Serve a record, and yield a tab that came in by the printed address, with the address of the server."""
    path = executable()
    assert path is not None
    doorkeeper = Doorkeeper(reading.store)
    listener = listen("127.0.0.1", 0, 16)
    server = server_of(reading, doorkeeper)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        async with browser(path) as tab:
            way_in = entrance(listener, doorkeeper)
            await tab.look(1280)
            await tab.go(way_in)
            yield tab, way_in.partition("/enter")[0]
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def visit(reading: RecordSource, axe: Path | None) -> list[Seen]:
    """Return what is seen of every page: wide and light, then narrow and dark."""
    script = axe.read_text() if axe else ""
    seen = []
    async with entered(reading) as (tab, root):
        for width, dark in ((1280, False), (390, True)):
            await tab.look(width, dark=dark)
            for address in ADDRESSES:
                seen.append(await _look(tab, root, address, width, script))
    return seen


async def _look(tab: Tab, root: str, address: str, width: int, script: str) -> Seen:
    tab.complaints.clear()
    await tab.go(root + address)
    seen = Seen(address=address, width=width)
    seen.too_wide = await tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    seen.overlaps = await tab.evaluate(OVERLAPS)
    seen.unreachable = await tab.evaluate(UNREACHABLE)
    if script:
        await tab.evaluate(script)
        seen.violations = await tab.evaluate(EXAMINE)
    seen.complaints = list(tab.complaints)
    return seen
