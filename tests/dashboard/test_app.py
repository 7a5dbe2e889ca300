"""Covers dashboard/pages.py, dashboard/html.py and dashboard/access.py: the pages, and who sees them."""

from urllib.parse import quote

import httpx
import pytest
from fuzz.seen_store import FOREIGN, KEYS, SILENT, STORY
from tests.dashboard.conftest import TICKET

from ostinato.dashboard.html import ago, num, prob, seconds, signed
from ostinato.dashboard.pages import PAGES
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.types import PartState, Reward, RewardPart

ASKED = {
    "/session": {"id": STORY},
    "/version": {"version": "8"},
    "/experiment": {"id": "e1"},
    "/group": {"id": "group/told"},
}
"""What an address needs beside its path."""
VIEWERS = KEYS | {"key-of-all": "operator"}
SUBJECTS = ({}, *({"id": id} for id in (STORY, SILENT, FOREIGN, "group/told", "e1")), {"version": "8"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.address)
async def test_each_page_has_an_address_and_its_json(operator: httpx.AsyncClient, page: object) -> None:
    asked = ASKED.get(page.address, {})
    shown, data = await operator.get(page.address, params=asked), await operator.get(page.json, params=asked)
    assert shown.status_code == data.status_code == 200, shown.text[:500]
    assert shown.headers["content-type"].startswith("text/html")
    assert data.json()["title"] in shown.text
    assert "<script>" not in shown.text and "style=" not in shown.text and "javascript:" not in shown.text


async def test_every_response_closes_the_door(operator: httpx.AsyncClient) -> None:
    for address in ("/sessions", "/nowhere", "/static/dashboard.css", "/enter", "/sessions.json"):
        headers = (await operator.get(address)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.address)
async def test_a_stranger_sees_nothing(stranger: httpx.AsyncClient, page: object) -> None:
    asked = ASKED.get(page.address, {})
    shown = await stranger.get(page.address, params=asked)
    assert (shown.status_code, shown.headers["location"], shown.text) == (303, "/enter", "")
    assert (await stranger.get(page.json, params=asked)).status_code == 401
    assert (await stranger.get("/live", params=asked)).status_code == 401


@pytest.mark.parametrize("key", VIEWERS)
async def test_organisations_and_users_do_not_see_each_other(stranger: httpx.AsyncClient, key: str) -> None:
    """No route, as HTML or as JSON, names a session or a word that its viewer may not know of."""
    name = VIEWERS[key]
    hidden = {
        "ada": ("silent", "foreign", "bob", "carol", "globex"),
        "bob": ("told/1", "foreign", "carol", "globex"),
        "root": ("foreign", "carol", "globex"),
        "carol": ("told/1", "silent", "acme"),
        "operator": (),
    }[name]
    headers = {"authorization": f"Bearer {key}"}
    for page in PAGES:
        for asked in SUBJECTS:
            for address in (page.address, page.json):
                response = await stranger.get(address, params=asked, headers=headers)
                text = response.text
                for echoed in asked.values():
                    text = text.replace(echoed, "").replace(quote(echoed, safe=""), "")
                assert not [word for word in hidden if word in text], (address, asked)
                assert name in {"bob", "operator"} or "secret words of bob" not in text


async def test_a_key_opens_the_door_and_a_revoked_one_does_not(
    stranger: httpx.AsyncClient, store: Store
) -> None:
    wrong = await stranger.post("/enter", data={"key": "nobody's"})
    assert wrong.status_code == 403 and "not known" in wrong.text
    entered = await stranger.post("/enter", data={"key": "key-of-ada"})
    cookie = entered.headers["set-cookie"].lower()
    assert entered.status_code == 303 and "httponly" in cookie and "samesite=strict" in cookie
    assert "key-of-ada" not in cookie
    assert (await stranger.get("/", follow_redirects=True)).url.path == "/sessions"
    store.accounts.retire([hash_key("key-of-bob")])
    assert (await stranger.post("/enter", data={"key": "key-of-bob"})).status_code == 403
    store.add_key(hash_key("feedback-only"), "eve", "feedback")
    assert (await stranger.post("/enter", data={"key": "feedback-only"})).status_code == 403


async def test_revoked_keys_are_folded_and_crowd_no_valid_one_out(
    operator: httpx.AsyncClient, store: Store
) -> None:
    for number in range(250):
        store.add_key(hash_key(f"old-{number}"), f"gone-{number}")
    store.accounts.retire([hash_key(f"old-{number}") for number in range(250)])
    page = (await operator.get("/accounts")).text
    valid, folded, revoked = page.partition("<summary>")
    assert folded and ">ada<" in valid and "gone-" not in valid and "gone-" in revoked


async def test_parts_of_a_reward_that_are_zero_are_folded(operator: httpx.AsyncClient, store: Store) -> None:
    states = {"kept": (1.0, PartState.OBSERVED, ("fact",)), "broken": (0.0, PartState.OBSERVED, ())}
    states |= dict.fromkeys(("left_1d", "left_7d"), (0.0, PartState.CENSORED, ()))
    states |= {"effort": (-0.01, PartState.OBSERVED, ())}
    parts = [
        RewardPart(name=name, value=value, state=state, evidence=evidence)
        for name, (value, state, evidence) in states.items()
    ]
    store.add_rewards([Reward(session_id=STORY, definition="d", parts=tuple(parts))])
    page = (await operator.get("/session", params={"id": STORY})).text
    card = page[page.index('id="rewards"') : page.index('id="ledger"')]
    shown, _, folded = card.partition("<summary>")
    assert [name for name in states if f">{name}<" in shown] == ["kept", "effort"]
    assert "3 parts are zero: 2 can still count, 1 saw nothing of the kind" in folded
    assert "observed</span>" not in folded and "computed from the turns" in shown


async def test_other_sites_and_host_names_are_refused(operator: httpx.AsyncClient) -> None:
    assert (await operator.get("/sessions", headers={"host": "evil.example"})).status_code == 403
    assert (await operator.get("/sessions", headers={"origin": "http://evil.example"})).status_code == 403


async def test_a_form_of_another_browser_is_refused(operator: httpx.AsyncClient) -> None:
    assert (await operator.post("/leave", data={"token": "made up"})).status_code == 403
    assert (await operator.get("/sessions")).status_code == 200
    assert (await operator.post("/leave", content=b"x" * 20_000)).status_code == 413


async def test_addresses_that_cannot_be_read_say_so(operator: httpx.AsyncClient) -> None:
    assert (await operator.get("/sessions?source=web")).status_code == 400
    assert (await operator.get("/session?id=nowhere")).status_code == 404
    assert STORY[:4] in (await operator.get(f"/session?id={STORY[:4]}")).text
    assert (await operator.get("/static/../app.py")).status_code == 404
    assert (
        (await operator.get("/session.json?id=nowhere")).json()["error"]["message"].startswith("no session")
    )


async def test_the_ticket_is_needed_whole(stranger: httpx.AsyncClient) -> None:
    assert (await stranger.get("/enter", params={"ticket": TICKET[:-1]})).status_code == 403
    assert (await stranger.get("/enter")).status_code == 200


def test_words_for_numbers_and_times() -> None:
    assert ago(1_000.0, now=1_000.0 + 7_200).endswith(">2 h ago</time>")
    assert "1970-01-01 00:16:40 UTC" in ago(1_000.0, now=2_000.0)
    assert "in 2 h" in ago(9_200.0, now=2_000.0)
    assert ago(1_000.0, now=1e9).endswith(">1970-01-01</time>")
    assert "unknown" in ago(None) and "unknown" in ago(1e300) and "unknown" in ago(-5.0)
    assert (signed(-0.5, 2), signed(-0.0001, 2), signed(None)) == ("−0.50", "0.00", "–")
    assert (num(12_345), num(None), num(0.5, 1)) == ("12\u202f345", "–", "0.5")
    assert (seconds(0.25), seconds(90.0), seconds(None)) == ("250 ms", "2 min", "–")
    assert (prob(0.0), prob(-9.2)) == ("1.00", "1.0e-04")
