"""Strata are read from the first prompt alone, and each is wide enough for a baseline."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.follow_ups.test_read import TOKENIZER, said

from ostinato.rewards.requests.kinds import RequestKind
from ostinato.rewards.requests.strata import Request, language_of, request_of, strata

REQUESTS = st.builds(
    Request, kind=st.sampled_from([*RequestKind]), language=st.sampled_from(["", "go", "python", "rust"])
)


def test_the_first_prompt_is_read_and_nothing_that_came_after_it() -> None:
    asked = said(0, "fix parse_date in src/dates.py, see tests/test_dates.py")
    later = said(1, "fix it", "done", "now write tests in main.go, a.go, b.go, c.go")
    assert request_of([asked, later], TOKENIZER) == Request(kind="fix", language="python")
    assert request_of([asked], TOKENIZER) == request_of([asked, later], TOKENIZER)


def test_a_session_whose_prompt_has_no_words_of_a_person_has_no_request() -> None:
    assert request_of([], TOKENIZER) is None
    assert request_of([said(0, "<system-reminder>be good</system-reminder>")], TOKENIZER) is None


def test_the_language_is_that_of_most_files_each_counted_once() -> None:
    assert language_of("a.py a.py a.py b.go c.go") == "go"
    assert language_of("v1.2 of e.g. nothing") == "" and language_of("see http://x.com/index.html") == "web"


def test_a_narrow_stratum_gives_way_to_the_next_wider_one() -> None:
    fixes = {f"py{i}": Request(kind="fix", language="python") for i in range(3)}
    others = {f"go{i}": Request(kind="fix", language="go") for i in range(2)} | {
        "docs": Request(kind="docs", language="")
    }
    assert strata(fixes | others, least=3) == {
        **dict.fromkeys(fixes, "fix/python"),
        **dict.fromkeys(["go0", "go1"], "fix"),
        "docs": "",
    }


@given(st.lists(REQUESTS, max_size=80), st.integers(1, 10))
def test_every_session_is_in_one_of_its_own_strata(requests: list[Request], least: int) -> None:
    named = {str(i): request for i, request in enumerate(requests)}
    found = strata(named, least)
    assert found.keys() == named.keys()
    assert all(found[id_] in request.strata for id_, request in named.items())
    kinds = Counter(request.kind for request in requests)
    assert all(found[id_] != "" or kinds[request.kind] < least for id_, request in named.items())
