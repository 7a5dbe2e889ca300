import pickle
from itertools import combinations

import pytest

from ostinato.tasks.pebble.families import FAMILIES, Family, Function


def function(family: Family, shown: str) -> Function:
    return Function(
        name="alpha",
        path="calc.py",
        family=family,
        parameters=family.parameters[: family.arity],
        shown=shown,
        wanted=shown,
        tested=shown,
    )


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_visible_input_tells_all_alternatives_apart(family: Family) -> None:
    values = [repr(family.compute(option, family.visible)) for option in family.options]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_hidden_inputs_tell_all_alternatives_apart_and_differ_from_the_visible_one(family: Family) -> None:
    outcomes = {
        option: [family.compute(option, given) for given in family.hidden] for option in family.options
    }
    assert all(outcomes[one] != outcomes[other] for one, other in combinations(family.options, 2))
    assert family.visible not in family.hidden


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_source_computes_the_same_as_the_family(family: Family) -> None:
    for option in family.options:
        scope: dict[str, object] = {}
        exec(function(family, option).source(), scope)
        for given in (family.visible, *family.hidden):
            assert eval("alpha(*given)", scope, {"given": given}) == family.compute(option, given)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_alternative_is_part_of_the_line_of_another(family: Family) -> None:
    lines = [function(family, option).line(option) + "\n" for option in family.options]
    assert not any(one in other for one in lines for other in lines if one != other)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_there_are_parameters_for_five_functions_of_one_family(family: Family) -> None:
    assert len(family.parameters) >= 5 * family.arity


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_another_process_finds_the_same_family(family: Family) -> None:
    assert pickle.loads(pickle.dumps(family)) is family
