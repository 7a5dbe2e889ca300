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
        Arm(name="champion", version=1, share=1 - challenger, engine="http://a"),
        Arm(name="challenger", version=2, share=challenger, engine="http://b"),
    ]


@given(users, share, share)
def test_widening_never_moves_a_user_who_already_met_the_arm(user: str, one: float, other: float) -> None:
    narrow, wide = sorted((one, other))
    if assign(user, two(narrow), "salt").name == "challenger":
        assert assign(user, two(wide), "salt").name == "challenger"


@given(users, share)
def test_the_same_question_has_the_same_answer(user: str, one: float) -> None:
    assert assign(user, two(one), "salt") == assign(user, list(reversed(two(one))), "salt")


def test_shares_are_kept_and_salts_deal_anew() -> None:
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
