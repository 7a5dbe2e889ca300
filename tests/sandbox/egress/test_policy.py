"""The hosts that the rules let through, in every spelling and whatever their names resolve to.

Covers sandbox/egress/policy.py.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.egress.conftest import resolve

from ostinato.sandbox.base import Egress, SandboxError
from ostinato.sandbox.egress.policy import PolicyRefusal, Rules, plain_name, split_target

LOOPBACK = ("127.0.0.0/8",)


def rules(*allow: str, networks: tuple[str, ...] = LOOPBACK) -> Rules:
    return Rules(Egress(allow=allow, networks=networks), resolve)


@pytest.mark.parametrize("host", ["good.test", "GOOD.test", "good.test."])
async def test_an_allowed_host_is_routed_to_its_address(host: str) -> None:
    assert await rules("good.test:80").route(host, 80) == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("good.test", 81),
        ("other.test", 80),
        ("good.test.evil.test", 80),
        ("xgood.test", 80),
        ("a.b.good.test", 80),
        ("127.0.0.1", 80),
        ("::1", 80),
        ("good.test\0.evil", 80),
        ("good.test/", 80),
        ("g\u043e\u043ed.test", 80),
        ("", 80),
        (".", 80),
        ("a" * 300, 80),
    ],
)
async def test_all_other_hosts_are_refused(host: str, port: int) -> None:
    with pytest.raises(PolicyRefusal):
        await rules("good.test:80").route(host, port)


async def test_a_star_covers_the_names_below() -> None:
    below = rules("*.good.test:80")
    assert await below.route("a.b.good.test", 80)
    for host in ("good.test", "evilgood.test", ".good.test"):
        with pytest.raises(PolicyRefusal):
            await below.route(host, 80)


@pytest.mark.parametrize("host", ["inside.test", "both.test", "mapped.test"])
async def test_a_name_that_leads_inside_is_refused(host: str) -> None:
    with pytest.raises(PolicyRefusal, match="inside"):
        await rules(f"{host}:80", networks=()).route(host, 80)


INSIDE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
    *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1"),
    *("2002:7f00:1::", "64:ff9b::a00:1", "198.18.0.1", "240.0.0.1"),
]


@pytest.mark.parametrize("address", INSIDE)
async def test_no_address_inside_is_reached(address: str) -> None:
    async def here(host: str, port: int) -> list[str]:
        return [address]

    with pytest.raises(PolicyRefusal):
        await Rules(Egress(allow=("name.test:80",)), here).route("name.test", 80)
    literal = f"[{address}]:80" if ":" in address else f"{address}:80"
    with pytest.raises(PolicyRefusal):
        await Rules(Egress(allow=(literal,)), here).route(address, 80)


async def test_the_checked_address_is_the_returned_one() -> None:
    answers = iter([["1.1.1.1"], ["127.0.0.1"]])

    async def changing(host: str, port: int) -> list[str]:
        return next(answers)

    found = Rules(Egress(allow=("name.test:80",)), changing)
    assert await found.route("name.test", 80) == "1.1.1.1"
    with pytest.raises(PolicyRefusal):
        await found.route("name.test", 80)


@pytest.mark.parametrize("host", ["nowhere.test", "absent.test"])
async def test_a_name_without_an_address_is_refused(host: str) -> None:
    with pytest.raises(PolicyRefusal, match="no address"):
        await rules(f"{host}:80").route(host, 80)


@pytest.mark.parametrize(
    "entry", ["", "good.test", "good.test:", "good.test:0", "good.test:99999", "*:80", "a b:1"]
)
def test_an_invalid_rule_is_an_error(entry: str) -> None:
    with pytest.raises(SandboxError, match="egress rule"):
        rules(entry)


def test_an_invalid_network_is_an_error() -> None:
    with pytest.raises(SandboxError, match="host bits"):
        rules("good.test:80", networks=("10.0.0.1/8",))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a.b:1", ("a.b", 1)),
        ("[::1]:443", ("::1", 443)),
        ("A.:80", ("a", 80)),
        ("[::FFFF:1.2.3.4]:1", ("::ffff:102:304", 1)),
    ],
)
def test_a_target_is_split(text: str, want: tuple[str, int]) -> None:
    assert split_target(text) == want


@given(st.text(max_size=40))
def test_any_text_is_a_target_or_refused(text: str) -> None:
    try:
        host, port = split_target(text)
    except PolicyRefusal:
        return
    assert host == plain_name(host)
    assert 0 < port < 65536
    assert not set(host) & set(" /@\\\0\r\n%?#")
