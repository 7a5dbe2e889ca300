from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.gateway.arms import ArmTable, assign, bucket
from ostinato.gateway.errors import ApiError
from ostinato.store import Store
from ostinato.types import Arm

users = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
share = st.floats(0, 1)


def two(challenger: float) -> list[Arm]:
    return [
        Arm(name="champion", version=1, share=1 - challenger, engines=("http://a",)),
        Arm(name="challenger", version=2, share=challenger, engines=("http://b",)),
    ]


@given(users, share, share)
def test_widening_never_moves_a_user_who_already_met_the_arm(user: str, one: float, other: float) -> None:
    narrow, wide = sorted((one, other))
    if assign(user, two(narrow), "salt").name == "challenger":
        assert assign(user, two(wide), "salt").name == "challenger"


@given(users, share)
def test_the_same_question_has_the_same_answer(user: str, one: float) -> None:
    assert assign(user, two(one), "salt") == assign(user, list(reversed(two(one))), "salt")


def test_shares_hold_and_another_salt_assigns_users_anew() -> None:
    names = [str(i) for i in range(4000)]
    met = [assign(name, two(0.25), "one").name == "challenger" for name in names]
    again = [assign(name, two(0.25), "two").name == "challenger" for name in names]
    assert 0.22 < sum(met) / 4000 < 0.28
    assert 0.04 < sum(a and b for a, b in zip(met, again, strict=True)) / 4000 < 0.09
    assert all(0 <= bucket(name, "one") < 1 for name in names)


def test_an_arm_without_share_is_never_dealt() -> None:
    assert {assign(str(i), two(0.0), "salt").name for i in range(100)} == {"champion"}
    with pytest.raises(ValueError, match="no arm has a share"):
        assign("ada", [], "salt")


async def test_the_table_follows_the_store(store: Store) -> None:
    table = ArmTable(store, "salt")
    with pytest.raises(ApiError, match="set arms in the store") as caught:
        table.choose("ada", None)
    assert caught.value.status == 503
    store.set_arms(two(0.0))
    await table.refresh()
    assert table.choose("ada", None).name == "champion"
    assert table.choose("ada", "challenger").name == "challenger"
    with pytest.raises(ApiError, match="pinned to arm 'gone'"):
        table.choose("ada", "gone")


def three(*shares: float) -> list[Arm]:
    base, one, other = shares
    return [
        Arm(name="champion", version=1, share=base, engines=("http://a",)),
        Arm(name="one", version=2, share=one, engines=("http://b",)),
        Arm(name="other", version=3, share=other, engines=("http://c",)),
    ]


@given(users, st.floats(0.01, 0.3), st.floats(0.01, 0.3))
def test_a_wider_experiment_moves_nobody_who_is_in_it(user: str, narrow: float, wide: float) -> None:
    narrow, wide = sorted((narrow, wide))
    before = assign(user, three(1 - 2 * narrow, narrow, narrow), "salt").name
    after = assign(user, three(1 - 2 * wide, wide, wide), "salt").name
    assert before in {"champion", after}


def test_enrolment_is_independent_of_the_arm() -> None:
    names = [str(i) for i in range(8000)]
    met = [assign(name, three(0.5, 0.25, 0.25), "salt").name for name in names]
    early = [bucket(name, "salt/enrolment") < 0.25 for name in names]
    for chosen in (True, False):
        those = [arm for arm, first in zip(met, early, strict=True) if first is chosen and arm != "champion"]
        assert 0.45 < those.count("one") / len(those) < 0.55


def test_each_experiment_deals_anew_and_stays_as_it_dealt() -> None:
    def met(experiment: str) -> set[str]:
        arms = [replace(arm, experiment=experiment) for arm in two(0.5)]
        people = (f"dev-{index:03d}" for index in range(400))
        return {user for user in people if assign(user, arms, "salt").name == "challenger"}

    first, second = met("e1"), met("e2")
    assert first == met("e1")
    assert 160 < len(first) < 240 and 160 < len(second) < 240
    assert 70 < len(first & second) < 130  # as many as chance gives, not the same people again


@given(users, st.floats(0, 2e9), st.floats(0, 1))
def test_a_block_of_hours_stays_on_one_arm_and_users_of_the_hold_out_meet_none(
    user: str, at: float, later: float
) -> None:
    arms = [replace(arm, experiment="trial@4h.5ec") for arm in two(0.5)]
    start = at // (4 * 3600) * 4 * 3600
    met = assign(user, arms, "salt", session="s1", at=start)
    assert assign(user, arms, "salt", session="s2", at=start + later * (4 * 3600 - 1)) == met
    frozen = replace(arms[0], name="frozen", share=1.0, experiment="hold-out")
    assert assign(user, [*arms, frozen], "salt", at=at) == frozen


def test_blocks_and_sessions_of_one_user_meet_both_arms_by_their_shares() -> None:
    for unit in ("4h", "session"):
        arms = [replace(arm, experiment=f"trial@{unit}.5ec") for arm in two(0.25)]
        met = [assign("ada", arms, "salt", session=str(n), at=4 * 3600.0 * n).name for n in range(2000)]
        assert 0.2 < met.count("challenger") / 2000 < 0.3
