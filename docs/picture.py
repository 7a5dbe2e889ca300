"""Draw the session of the README: `python -m docs.picture` writes `docs/session.svg`.

It is the session of `tests/harness/record.py`: a real `ostinato code` on a real terminal, against a real
gateway. Only the model is a script.
"""

import asyncio
import io
import os
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text
from tests.harness.record import recorded

PICTURE = Path(__file__).parent / "session.svg"
WIDTH = 92
REMOTE_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A style that would fetch a font from a server that is not ours."""


def draw(screen: str) -> str:
    """Return an SVG of a terminal that shows `screen`, escape sequences included."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    return REMOTE_FONT.sub("", console.export_svg(title="ostinato code", unique_id="session"))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    PICTURE.write_text(draw(asyncio.run(recorded(colours=True))) + "\n")
