from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ostinato.deploy.traffic import TrafficError, promote, roll_back, split
from ostinato.store import Store
from ostinato.types import Arm

CHAMPION = Arm(name="champion", version=1, share=0.7, engines=("http://a",), experiment="e1")
CHALLENGER = Arm(name="challenger", version=2, share=0.3, engines=("http://b",), experiment="e1")
BENCH = Arm(name="bench", version=9, share=0.0, engines=("http://c",))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store.db")
    store.set_arms([Arm(name="champion", version=1, share=1.0, engines=("http://a",)), BENCH])
    return store


def arms(store: Store) -> dict[str, tuple[int, float, tuple[str, ...]]]:
    return {arm.name: (arm.version, arm.share, arm.engines) for arm in store.arms()}


def test_a_split_keeps_pinned_arms(store: Store) -> None:
    split(store, (CHAMPION, CHALLENGER))
    assert arms(store) == {
        "champion": (1, 0.7, ("http://a",)),
        "challenger": (2, 0.3, ("http://b",)),
        "bench": (9, 0.0, ("http://c",)),
    }


def test_promotion_sends_everyone_to_the_challengers_version(store: Store) -> None:
    split(store, (CHAMPION, CHALLENGER))
    assert promote(store, (CHAMPION, CHALLENGER)).version == 2
    assert arms(store)["champion"] == (2, 1.0, ("http://b",))
    assert sum(share for _, share, _ in arms(store).values()) == 1.0


def test_roll_back_leaves_nobody_on_the_challengers_version(store: Store) -> None:
    split(store, (CHAMPION, CHALLENGER))
    assert roll_back(store, (CHAMPION, CHALLENGER)).version == 1
    assert arms(store)["champion"] == (1, 1.0, ("http://a",))
    assert arms(store)["challenger"] == (1, 0.0, ("http://a",))


@pytest.mark.parametrize("end", [promote, roll_back])
def test_an_ended_trial_leaves_no_arm_in_an_experiment(
    store: Store, end: Callable[[Store, Sequence[Arm]], Arm]
) -> None:
    split(store, (CHAMPION, CHALLENGER))
    assert {arm.experiment for arm in store.arms() if arm.share} == {"e1"}
    end(store, (CHAMPION, CHALLENGER))
    assert {arm.experiment for arm in store.arms()} == {""}


def test_shares_must_add_up(store: Store) -> None:
    with pytest.raises(TrafficError, match=r"champion=0\.7"):
        split(store, (CHAMPION,))
    assert arms(store)["champion"][1] == 1.0


def test_names_must_differ(store: Store) -> None:
    with pytest.raises(TrafficError, match="different names"):
        split(store, (CHAMPION, Arm(name="champion", version=2, share=0.3, engines=("http://b",))))
