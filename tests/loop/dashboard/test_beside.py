"""A dashboard beside something else: it lets in, ends with the block, and says why it is not there."""

import urllib.request
from pathlib import Path

from ostinato.loop.dashboard.beside import dashboard_beside
from ostinato.store import Store


def test_it_lets_in_and_ends_with_the_block(tmp_path: Path) -> None:
    Store.open(tmp_path / "store.db").close()
    with dashboard_beside(tmp_path / "logs" / "dashboard.log", "--directory", str(tmp_path)) as beside:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(beside.address) as page:
            assert page.status == 200 and b"ostinato" in page.read()
        assert beside.words == f"see it: {beside.address}" and beside.process is not None
    assert beside.process.returncode is not None
    beside.stay()  # it has ended, so nobody waits


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    with dashboard_beside(tmp_path / "dashboard.log", "--store", str(tmp_path / "none.db")) as beside:
        assert not beside.address and "none.db is no record" in beside.words
        beside.stay()
