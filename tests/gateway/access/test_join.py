import re

import aiohttp
import pytest
from tests.gateway.conftest import KEY

from ostinato.gateway.access.join import MOST_REFUSED, SCRIPT, Refusals
from ostinato.gateway.errors import ApiError
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.store.team.joins import Joins

MINE, THEIRS = "key of my laptop", "key of another machine"


@pytest.fixture
async def post(gateway: str):
    async def send(path: str = "/join", headers=None, **body):
        async with (
            aiohttp.ClientSession() as http,
            http.post(gateway + path, json=body, headers=headers or {}) as answer,
        ):
            return answer.status, await answer.json()

    return send


async def test_a_code_is_exchanged_for_a_key_that_works(store: Store, gateway: str, post) -> None:
    code = Joins(store.database).invite("eve", "", expires_at=2e9)
    joined = {"user": "eve", "organisation": "", "trained_on": True}
    for _ in range(2):
        assert await post(code=code, key=hash_key(MINE), consent=True) == (200, joined)
    async with aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {MINE}"}
        async with http.get(gateway + "/v1/models/ostinato", headers=headers) as answer:
            assert (await answer.json())["recording"]["user"] == "eve"
    status, body = await post(code=code, key=hash_key(THEIRS), consent=True)
    assert (status, body["error"]["code"]) == (409, "join_used")
    assert "ask your operator" in body["error"]["message"] and code not in str(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"code": "join_x", "key": "short"}, "SHA-256"),
        ({"code": "", "key": "0" * 64}, "team add"),
        ({"code": "join_x", "key": "0" * 64, "consent": "yes"}, "true, false or null"),
        ({"code": "join_x", "key": "0" * 64, "roles": "admin"}, "send"),
        ({"code": "join_x", "key": "0" * 64}, "not known here"),
    ],
)
async def test_what_is_refused_says_what_to_do(post, body, said: str) -> None:
    status, answer = await post(**body)
    assert status in (400, 404) and said in answer["error"]["message"]


async def test_who_guesses_waits_and_others_behind_the_same_proxy_do_not(store: Store, post) -> None:
    code = Joins(store.database).invite("eve", "", expires_at=2e9)
    guess, mallory = {"key": "0" * 64}, {"X-Forwarded-For": "10.0.0.9, 203.0.113.7"}
    for number in range(MOST_REFUSED):
        assert (await post(code=f"join_{number}", headers=mallory, **guess))[0] == 404
    status, answer = await post(code=code, headers=mallory, **guess)
    assert status == 429 and "203.0.113.7" in answer["error"]["message"]
    assert (await post(code=code, headers={"X-Forwarded-For": "198.51.100.4"}, **guess))[0] == 200


def test_refusals_are_forgotten_after_a_minute() -> None:
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    for _ in range(MOST_REFUSED):
        refusals.check("a")
        refusals.count("a")
    with pytest.raises(ApiError) as caught:
        refusals.check("a")
    assert caught.value.headers["Retry-After"] == "61"
    now[0] = 61.0
    refusals.check("a")


async def test_a_person_changes_their_word_and_nobody_elses(store: Store, post) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    for granted in (True, False):
        assert await post("/consent", headers, granted=granted) == (
            200,
            {"organisation": "", "user": "ada", "trained_on": granted},
        )
    assert (await post("/consent", headers, granted=True, user="bob"))[0] == 400
    assert (await post("/consent", granted=True))[0] == 401


async def test_the_script_does_nothing_until_all_of_it_is_there(gateway: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(gateway + "/join") as answer:
        assert await answer.text() == SCRIPT
    assert re.match(r"#[^\n]*\nmain\(\) \{\n.*\n\}\nmain \"\$@\"\n\Z", SCRIPT, re.DOTALL)
