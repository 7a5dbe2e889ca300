"""The plan of a guarded run: each real test once, and every kind of planted test in the runs of a pass."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox.exam.guarded.suite import RUNNERS, dealt, planned

IDS = st.lists(
    st.builds("{}.py::{}{}".format, st.sampled_from("ab"), st.sampled_from(["", "C::"]), st.integers(0, 9)),
    min_size=1,
    unique=True,
)


@given(variations=st.integers(0, 4), runner=st.sampled_from(sorted(RUNNERS)))
def test_a_pass_has_every_kind_and_each_run_one_that_must_pass(variations: int, runner: str) -> None:
    kinds = RUNNERS[runner].planted
    hands = dealt(kinds, variations)
    assert len(hands) == variations + 1
    assert {kind for hand in hands for kind in hand} == set(kinds)
    assert all(hand.count("pass") == 1 and len(set(hand)) == len(hand) for hand in hands)


@given(ids=IDS, seed=st.integers(0, 2))
def test_each_test_is_planned_once_and_planted_ones_bear_an_id_of_theirs(ids: list[str], seed: int) -> None:
    order = planned(ids, seed, ["pass", "equal"])
    assert Counter(test for test, kind in order if not kind) == Counter(ids)
    assert Counter(kind for _, kind in order if kind) == {"pass": 1, "equal": 1}
    assert {test for test, _ in order} == set(ids)
    real = [test for test, kind in order if not kind]
    files = [test.partition("::")[0] for test in real]
    assert [each for at, each in enumerate(files) if at == 0 or files[at - 1] != each] == [
        *dict.fromkeys(files)
    ]
    assert len(ids) == 1 or not seed or real != ids
