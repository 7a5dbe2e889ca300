from ostinato.types import Abilities


def test_what_it_lacks_is_named_in_the_order_asked() -> None:
    able = Abilities(sampling=frozenset({"top_p", "top_k"}))
    assert able.lacks(("top_p", "min_p", "top_k", "presence_penalty")) == ("min_p", "presence_penalty")
    assert able.lacks(()) == ()
