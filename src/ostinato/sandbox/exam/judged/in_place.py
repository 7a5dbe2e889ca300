"""Arguments that the candidate changes in place: the worker notices, and the judge changes its own alike.

Only a call that returns None or raises reports changes. Otherwise a candidate could empty the input of
`assert doubled(xs) == [2 * x for x in xs]` and answer with an empty list.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ostinato.sandbox.exam.judged import values

CONTAINERS = (list, dict, set, bytearray)
Arguments = dict[int | str, Any]
"""The changeable arguments of a call by their place or keyword."""


def changeable(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments that a call may change in place.

    >>> changeable([1, [2]], {"c": {3}})
    {1: [2], 'c': {3}}
    """
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return {key: each for key, each in named if type(each) in CONTAINERS}


class Watched:
    """The changeable arguments of one call as they were before it."""

    def __init__(self, arguments: Arguments, pack: Callable[[Any], Any]) -> None:
        self._arguments = arguments
        self._pack = pack
        self._before = {key: values.encode(each, pack) for key, each in arguments.items()}

    def changes(self) -> list[list[Any]]:
        """Return the place or keyword and the value of each argument that was changed."""
        return [
            [key, each]
            for key, each in self._arguments.items()
            if values.encode(each, self._pack) != self._before[key]
        ]


def apply(arguments: Arguments, changes: Any) -> None:
    """Change arguments as a worker reports. Raises ValueError for a report that no call could lead to."""
    if type(changes) is not list:
        raise ValueError("malformed changes of arguments")
    for change in changes:
        if type(change) is not list or len(change) != 2 or type(change[0]) not in (int, str):
            raise ValueError("malformed changes of arguments")
        old = arguments.get(change[0])
        if type(old) not in CONTAINERS or type(change[1]) is not type(old):
            raise ValueError("a change of an argument that cannot be changed in place")
        become(old, change[1])


def become(old: Any, new: Any) -> Any:
    """Give `old` the content of `new`, containers in the same place included; return it."""
    if isinstance(old, list):
        inside = [_merged(old[at] if at < len(old) else None, each) for at, each in enumerate(new)]
        list.__setitem__(old, slice(None), inside)
    elif isinstance(old, dict):
        items = {key: _merged(dict.get(old, key), each) for key, each in new.items()}
        dict.clear(old)
        dict.update(old, items)
    elif isinstance(old, set):
        set.clear(old)
        set.update(old, new)
    else:
        old[:] = new
    return old


def _merged(old: Any, new: Any) -> Any:
    return become(old, new) if type(old) in CONTAINERS and type(old) is type(new) else new
