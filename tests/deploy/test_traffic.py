from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from ostinato.deploy.traffic import TrafficError, placed, point_arm, promoted, restored, split
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


def test_an_engine_that_moves_keeps_the_place_and_the_share_of_its_arm(store: Store) -> None:
    split(store, (CHAMPION, CHALLENGER))
    point_arm(store, replace(CHAMPION, share=0.0, engines=()), "http://d")
    assert [arm.name for arm in store.arms()] == ["champion", "challenger", "bench"]
    assert arms(store)["champion"] == (1, 0.7, ("http://d",))
    point_arm(store, replace(CHALLENGER, version=3, share=0.0), "http://e")
    assert arms(store)["challenger"] == (3, 0.0, ("http://e",)), "nobody was assigned to another version"


def test_what_another_process_writes_meanwhile_is_not_undone(store: Store, tmp_path: Path) -> None:
    split(store, (CHAMPION, CHALLENGER))
    other, reads, rolled_back = Store.open(tmp_path / "store.db"), Event(), Event()

    def rolls_back() -> None:
        reads.wait(30)
        split(other, restored((CHAMPION, CHALLENGER)))
        rolled_back.set()

    def slowly(present: Sequence[Arm]) -> list[Arm]:
        reads.set()
        assert not rolled_back.wait(0.2), "the other process waits for this change to end"
        return placed(present, replace(present[1], engines=("http://e",)))

    process = Thread(target=rolls_back)
    process.start()
    store.change_arms(slowly)
    process.join(30)
    assert arms(store)["challenger"] == (1, 0.0, ("http://a",)) and arms(store)["champion"][1] == 1.0
    other.close()


def test_promotion_sends_everyone_to_the_challengers_version(store: Store) -> None:
    split(store, (CHAMPION, CHALLENGER))
    split(store, promoted((CHAMPION, CHALLENGER)))
    assert arms(store)["champion"] == (2, 1.0, ("http://b",))
    assert sum(share for _, share, _ in arms(store).values()) == 1.0


def test_roll_back_leaves_nobody_on_the_challengers_version(store: Store) -> None:
    split(store, (CHAMPION, CHALLENGER))
    split(store, restored((CHAMPION, CHALLENGER)))
    assert arms(store)["champion"] == (1, 1.0, ("http://a",))
    assert arms(store)["challenger"] == (1, 0.0, ("http://a",))


@pytest.mark.parametrize("end", [promoted, restored])
def test_an_ended_trial_leaves_no_arm_in_an_experiment(
    store: Store, end: Callable[[Sequence[Arm]], tuple[Arm, Arm]]
) -> None:
    split(store, (CHAMPION, CHALLENGER))
    assert {arm.experiment for arm in store.arms() if arm.share} == {"e1"}
    split(store, end((CHAMPION, CHALLENGER)))
    assert {arm.experiment for arm in store.arms()} == {""}


def test_shares_must_add_up(store: Store) -> None:
    with pytest.raises(TrafficError, match=r"champion=0\.7"):
        split(store, (CHAMPION,))
    assert arms(store)["champion"][1] == 1.0


def test_names_must_differ(store: Store) -> None:
    with pytest.raises(TrafficError, match="different names"):
        split(store, (CHAMPION, Arm(name="champion", version=2, share=0.3, engines=("http://b",))))
