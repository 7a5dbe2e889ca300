"""The offers of a profile: tools as the model sees them, under other names and forms."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ostinato.harness.errors import InvalidArguments
from ostinato.harness.profiles import forms, schema
from ostinato.harness.profiles.forms import Form
from ostinato.harness.tools import names
from ostinato.harness.tools.definitions import CATALOGUE, tool

NAMES = {"path", "glob"}
"""The canonical arguments that hold names of files; so does the pattern of `glob`."""
READING = {"read", "grep", "glob", "ls", "semantic_search"}
"""The canonical tools that only read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A dialect's name and form of an argument.

    >>> Argument(name="timeout", canonical="timeout", schema={"type": "integer"}).form.value
    'plain'
    """

    name: str
    canonical: str
    schema: Mapping[str, Any]
    form: Form = Form.PLAIN
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A call in canonical words; in the model's own words when `error` says that it fits no tool.

    >>> Reading(tool="read", arguments={"path": "calc.py"}).error is None
    True
    """

    tool: str
    arguments: Mapping[str, Any]
    error: InvalidArguments | None = None
    reads: bool = False
    """The call changes nothing and asks nobody, so that its neighbours may run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A schema, and the tool that a call of it means.

    >>> shown_as("read", "Read", path="file_path").read({"file_path": "calc.py"})
    {'path': 'calc.py'}
    """

    tool: str
    """The canonical name of the tool."""
    shown: Mapping[str, Any]
    """The OpenAI function schema, with the names of the dialect."""
    arguments: tuple[Argument, ...]
    foreign: bool = False
    """Somebody else runs the tool and checks its arguments."""
    reads: bool = False
    """The tool only reads, as we know of our own and as a foreign one declares."""

    @property
    def name(self) -> str:
        name: str = self.shown["function"]["name"]
        return name

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the canonical arguments of a call; raises InvalidArguments in the words of the dialect."""
        if self.foreign:
            return dict(arguments)
        schema.check_arguments(self.name, arguments, self.shown["function"]["parameters"])
        meant: dict[str, Any] = {}
        for each in self.arguments:
            if each.name in arguments:
                meant |= forms.read(each.form, each.canonical, arguments[each.name])
        named = {key: names.meant(meant[key]) for key in NAMES & meant.keys()}
        if self.tool == "glob":
            named["pattern"] = names.meant(meant["pattern"])
        return meant | named

    def write(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return canonical arguments in the words of the dialect: `read` gives them back. Raises KeyError for
        an argument that is not offered."""
        by_name = {each.canonical: each for each in self.arguments}
        offered = ((by_name[key], value) for key, value in arguments.items())
        return {each.name: forms.write(each.form, value) for each, value in offered}

    def worded(self, text: str) -> str:
        """Return `text`, whose first line names arguments, in the words of the dialect."""
        first, newline, rest = text.partition("\n")
        renamed = {each.canonical: each.name for each in self.arguments if each.name != each.canonical}
        return _renamed(first, renamed) + newline + rest


def as_it_is(name: str) -> Offer:
    """Return the offer of a tool under its canonical names."""
    return _offer(name, CATALOGUE[name], _plain_arguments(name, {}))


def foreign(shown: Mapping[str, Any], *, reads: bool = False) -> Offer:
    """Return the offer of a tool that somebody else runs."""
    return Offer(tool=shown["function"]["name"], shown=shown, arguments=(), foreign=True, reads=reads)


def shown_as(canonical: str, name: str, *others: Argument, says: str | None = None, **renamed: str) -> Offer:
    """Return the offer of a tool under other names.

    `others` replace the arguments they stand for, or come beside them; an argument that is renamed to the
    empty string is not shown.
    """
    plain = _plain_arguments(canonical, renamed)
    replacing = {each.canonical: each for each in others}
    arguments = [replacing.get(each.canonical, each) for each in plain if renamed.get(each.canonical) != ""]
    arguments += [each for each in others if each not in arguments]
    description = says or _renamed(CATALOGUE[canonical]["function"]["description"], renamed)
    required = tuple(each.name for each in arguments if each.required)
    schemas = {each.name: each.schema for each in arguments}
    return _offer(canonical, tool(name, description, required, **schemas), arguments)


def _offer(canonical: str, shown: Mapping[str, Any], arguments: list[Argument]) -> Offer:
    return Offer(tool=canonical, shown=shown, arguments=tuple(arguments), reads=canonical in READING)


def _plain_arguments(canonical: str, renamed: Mapping[str, str]) -> list[Argument]:
    parameters = CATALOGUE[canonical]["function"]["parameters"]
    return [
        Argument(
            name=renamed.get(key, key), canonical=key, schema=value, required=key in parameters["required"]
        )
        for key, value in parameters["properties"].items()
    ]


def _renamed(text: str, renamed: Mapping[str, str]) -> str:
    for old, new in renamed.items():
        text = re.sub(rf"\b{old}\b", new, text) if new else text
    return text
