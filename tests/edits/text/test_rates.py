from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ostinato.edits.text.rates import Rates, alike, contained, mean, rates

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LINES = st.lists(st.text("abcdef =+()", min_size=4, max_size=20), min_size=1, max_size=12)
ONE = st.text("abcdef", min_size=1, max_size=40)
OTHER = st.text("uvwxyz", min_size=1, max_size=40)


@UNTIMED
@given(LINES, LINES)
def test_unchanged_text_survives_whole(proposed, before) -> None:
    assume(proposed != before)
    assert rates(proposed, proposed, before).four_gram == 1.0
    if "".join(proposed) != "".join(before):
        assert rates(proposed, proposed, before).no_revert == 1.0


@UNTIMED
@given(ONE, OTHER)
def test_text_with_nothing_in_common_is_zero(proposed, now) -> None:
    assert rates([now], [proposed], ["other"]).four_gram == 0.0


@UNTIMED
@given(ONE, OTHER)
def test_the_text_before_put_back_is_a_revert(proposed, before) -> None:
    assert rates([before], [proposed], [before]).no_revert == 0.0
    assert rates([], [proposed], []).no_revert == 0.0
    assert rates([], [proposed], []).four_gram == 0.0


@UNTIMED
@given(LINES, LINES, LINES)
def test_rates_lie_between_none_and_all(now, proposed, before) -> None:
    found = rates(now, proposed, before)
    assert 0.0 <= found.four_gram <= 1.0 and 0.0 <= found.no_revert <= 1.0


@UNTIMED
@given(LINES, st.data())
def test_the_more_is_taken_away_the_less_is_left(proposed, data) -> None:
    """A shorter remainder never has a higher rate."""
    much = data.draw(st.integers(0, len(proposed)))
    more = data.draw(st.integers(much, len(proposed)))
    less_left = rates(proposed[: len(proposed) - more], proposed, []).four_gram
    assert less_left <= rates(proposed[: len(proposed) - much], proposed, []).four_gram


@UNTIMED
@given(LINES, LINES)
def test_likeness_does_not_depend_on_the_order(one, other) -> None:
    assert alike("".join(one), "".join(other)) == alike("".join(other), "".join(one))


@UNTIMED
@given(LINES, LINES)
def test_a_deletion_lasts_until_its_lines_are_back(before, rest) -> None:
    assert rates([], [], before) == Rates(four_gram=1.0, no_revert=1.0)
    assert rates(["".join(before), *rest], [], before).no_revert == 0.0


def test_half_way_back_is_half_a_revert() -> None:
    before, proposed = ["aaaabbbbccccdddd"], ["eeeeffffgggghhhh"]
    half = rates(["eeeeffffccccdddd"], proposed, before)
    assert 0.3 < half.no_revert < 0.7 and 0.3 < half.four_gram < 0.7


def test_hunks_count_by_their_weight() -> None:
    kept, gone = Rates(four_gram=1.0, no_revert=1.0), Rates(four_gram=0.0, no_revert=0.0)
    assert mean([(3.0, kept), (1.0, gone)]) == Rates(four_gram=0.75, no_revert=0.75)


def test_nothing_is_contained_in_nothing() -> None:
    assert contained("", "abc") == contained("abc", "") == 0.0
