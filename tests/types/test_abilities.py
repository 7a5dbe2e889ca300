from ostinato.types import Abilities, Sampling, Structure, StructureKind

YES = Structure(kind=StructureKind.REGEX, text="yes")


def test_what_it_lacks_is_named() -> None:
    able = Abilities(sampling=frozenset({"top_p", "top_k"}))
    bent = Sampling(top_p=0.5, min_p=0.1, top_k=3, presence_penalty=1.0, structure=YES)
    assert able.lacks(bent) == ("min_p", "presence_penalty", "regex")
    assert able.lacks(Sampling(temperature=0.0, seed=4)) == ()
    assert Abilities(structures=frozenset({"regex"})).lacks(Sampling(structure=YES)) == ()
