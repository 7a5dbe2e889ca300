import pytest

from ostinato.gateway.access.limits import MOST_COUNTED, KeyLimits
from ostinato.gateway.errors import ApiError
from ostinato.types import ApiKey


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def nothing(*_: object) -> None:
    pass


def refused(limits: KeyLimits, key: ApiKey) -> ApiError:
    with pytest.raises(ApiError) as caught, limits.admitted(key):
        pass
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
    return caught.value


def test_a_minute_has_so_many_requests() -> None:
    clock = Clock()
    limits, key = KeyLimits(clock), ApiKey(hash="1", user="ada", requests_per_minute=3)
    for _ in range(3):
        with limits.admitted(key):
            pass
    assert refused(limits, key).headers["Retry-After"] == "20"
    clock.now = 19.0
    assert refused(limits, key).headers["Retry-After"] == "1"
    clock.now = 20.0
    with limits.admitted(key):
        pass
    refused(limits, key)
    clock.now = 1e6
    for _ in range(3):
        with limits.admitted(key):
            pass
    refused(limits, key)


async def test_so_many_are_under_way_until_their_answer_is_sent() -> None:
    limits, key = KeyLimits(), ApiKey(hash="1", user="ada", concurrent=2)
    with limits.admitted(key) as first:
        reply = first.until_sent(nothing)
    with limits.admitted(key):
        refused(limits, key)
    with limits.admitted(key):
        pass
    await reply({}, nothing, nothing)
    with limits.admitted(key), limits.admitted(key):
        refused(limits, key)


async def test_a_request_that_fails_is_over_too() -> None:
    limits, key = KeyLimits(), ApiKey(hash="1", user="ada", concurrent=1)

    async def fails(*_: object) -> None:
        raise OSError("gone")

    with pytest.raises(KeyError), limits.admitted(key):
        raise KeyError
    with limits.admitted(key) as admission:
        reply = admission.until_sent(fails)
    with pytest.raises(OSError, match="gone"):
        await reply({}, nothing, nothing)
    with limits.admitted(key):
        pass


def test_keys_do_not_share_and_none_is_free() -> None:
    limits = KeyLimits()
    ada, bob, eve = (ApiKey(hash=n, user=n, requests_per_minute=1) for n in ("ada", "bob", "eve"))
    with limits.admitted(ada), limits.admitted(bob), limits.admitted(eve):
        pass
    free = ApiKey(hash="free", user="free")
    for _ in range(100):
        with limits.admitted(free):
            pass


def test_the_number_of_remembered_keys_is_bounded() -> None:
    limits = KeyLimits()
    busy = ApiKey(hash="busy", user="busy", concurrent=1)
    with limits.admitted(busy):
        for i in range(MOST_COUNTED + 50):
            with limits.admitted(ApiKey(hash=str(i), user="u", concurrent=1)):
                pass
        refused(limits, busy)
    assert len(limits._uses) <= MOST_COUNTED + 51
