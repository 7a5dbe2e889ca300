"""Draw the pictures of the dashboard's page: `python -m docs.seen` writes them into `docs/seen/`.

They are pages of the made-up record of `fuzz/seen_store.py` and `fuzz/seen_history.py`, as a real Chromium
shows them.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from fuzz.seen_history import EXPERIMENT, grow
from fuzz.seen_session import teach_tokenizer
from fuzz.seen_store import NOW, STORY, fill
from tests.dashboard.visit import entered

from ostinato.dashboard.reading.base import RecordSource
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.loop.dashboard.link import LoopLink
from ostinato.store import Store

FOLDER = Path(__file__).parent / "seen"
PICTURES = {
    "experiment": (f"/experiment?id={EXPERIMENT}", False, 1_000),
    "session": (f"/session?id={STORY}", False, 1_100),
    "training": ("/training", True, 900),
    "rewards": ("/rewards", False, 860),
}
"""The address, whether it is dark, and the height of each picture in CSS pixels."""


async def draw(reading: RecordSource) -> None:
    """Write the pictures."""
    async with entered(reading) as (tab, root):
        for name, (address, dark, height) in PICTURES.items():
            await tab.look(1280, dark=dark)
            await tab.go(root + address)
            drawn = await tab.picture(most_height=height, scale=0.75)
            await asyncio.to_thread((FOLDER / f"{name}.png").write_bytes, drawn)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        start, store = Path(folder) / "start", Store.open(Path(folder) / "store.db")
        renderer = teach_tokenizer(start)
        fill(store, renderer)
        grow(store, renderer)
        asyncio.run(
            draw(
                RecordSource(
                    store=store,
                    lexicon=Lexicon.load(start),
                    clock=lambda: NOW,
                    directory=Path(folder),
                    loop=LoopLink(),
                )
            )
        )
        store.close()
