from ostinato.store import Store
from ostinato.store.passes import Passes, PassKey

KEY = PassKey(suite="s 1", hash="9f", side="version 3", task="t", number=0)


def test_a_pass_is_finished_once_and_by_the_session_that_has_it(place: str) -> None:
    passes = Passes(Store.open(place).database)
    assert passes.begin(KEY, "one") is None
    assert passes.results("s 1", "9f", "version 3") == {}
    assert passes.begin(KEY, "two") == "one"  # the first attempt was cut off
    assert not passes.finish(KEY, "one", {"solved": True})
    assert passes.finish(KEY, "two", {"solved": False})
    assert not passes.finish(KEY, "two", {"solved": True})
    assert passes.begin(KEY, "three") == "two"  # a finished pass stays as it is
    assert not passes.finish(KEY, "three", {"solved": True})
    again = Passes(Store.open(place).database)
    assert again.results("s 1", "9f", "version 3") == {("t", 0): {"solved": False}}
    assert again.attempts("s 1", "9f", "version 3") == 2
    assert again.hashes("s 1") == {"9f": {"version 3"}} and again.hashes("other") == {}
