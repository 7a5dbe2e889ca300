"""The waits between attempts grow, and end with the patience."""

import time

from ostinato.web.patience import FIRST_WAIT_S, Patience


async def test_each_wait_is_twice_as_long() -> None:
    patience, began = Patience(3600), time.monotonic()
    assert await patience.lasts() and await patience.lasts()
    assert time.monotonic() - began >= 3 * FIRST_WAIT_S


async def test_it_never_waits_beyond_its_time() -> None:
    assert not await Patience(FIRST_WAIT_S / 2).lasts()
