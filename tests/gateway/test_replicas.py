"""A session stays where its prompt is cached, and goes elsewhere when that replica is away or overloaded."""

import math
from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.replicas import BALANCE, FIRST_AWAY_S, LONGEST_AWAY_S, Replicas

POOL = [f"http://engine-{i}" for i in range(5)]
SESSIONS = [f"s{i}" for i in range(500)]


def test_a_session_stays_on_its_replica_while_nothing_changes() -> None:
    replicas = Replicas()
    first = {session: replicas.choose(session, POOL) for session in SESSIONS}
    assert first == {session: replicas.choose(session, POOL[::-1]) for session in SESSIONS}
    shares = Counter(first.values())
    assert len(shares) == 5 and max(shares.values()) < 2 * min(shares.values())


def test_only_the_sessions_of_a_replica_that_goes_are_moved() -> None:
    replicas = Replicas()
    before = {session: replicas.choose(session, POOL) for session in SESSIONS}
    after = {session: replicas.choose(session, POOL[1:]) for session in SESSIONS}
    assert {s for s in SESSIONS if before[s] != after[s]} == {s for s in SESSIONS if before[s] == POOL[0]}


@given(st.lists(st.sampled_from(SESSIONS), max_size=80), st.integers(1, 5))
def test_no_replica_is_overloaded_whatever_sessions_come(sessions: list[str], count: int) -> None:
    replicas, pool = Replicas(), POOL[:count]
    with ExitStack() as stack:
        for number, session in enumerate(sessions, start=1):
            stack.enter_context(replicas.lease(session, pool))
            running = [state.running for state in replicas.states().values()]
            assert sum(running) == number
            assert max(running) <= math.ceil(BALANCE * number / count)
    assert not replicas.states()


def test_a_replica_that_failed_is_left_alone_longer_each_time_and_comes_back() -> None:
    now = 0.0
    replicas = Replicas(lambda: now)
    url = replicas.choose("s", POOL)
    replicas.failed(url)
    assert replicas.choose("s", POOL) != url and replicas.states()[url].away
    now = FIRST_AWAY_S
    assert replicas.choose("s", POOL) == url
    for _ in range(20):
        replicas.failed(url)
    now += LONGEST_AWAY_S - 0.1
    assert replicas.is_away(url)
    now += 0.2
    assert not replicas.is_away(url)
    replicas.answered(url)
    replicas.failed(url)
    now += FIRST_AWAY_S
    assert not replicas.is_away(url)


def test_when_all_are_away_one_is_tried_all_the_same() -> None:
    replicas = Replicas()
    for url in POOL:
        replicas.failed(url)
    assert replicas.choose("s", POOL) in POOL


def test_an_arm_without_an_engine_has_no_choice() -> None:
    with pytest.raises(ValueError, match="at least one engine"):
        Replicas().choose("s", [])


def test_a_replica_that_failed_thousands_of_times_is_still_tried_again() -> None:
    replicas = Replicas()
    for _ in range(3000):
        replicas.failed("http://a")
    assert replicas.is_away("http://a")
    assert replicas.choose("s", ("http://a", "http://b")) == "http://b"
