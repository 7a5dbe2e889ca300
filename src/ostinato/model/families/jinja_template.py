"""A checkpoint's Jinja chat template, run in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from ostinato import extras
from ostinato.model.families.base import Message, RenderError


class ChatTemplate:
    """A Jinja chat template in a sandbox, with the names that transformers gives it."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        try:
            from jinja2 import TemplateError, nodes
            from jinja2.ext import Extension, loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise RenderError(extras.sentence("jinja2", "its chat template")) from error

        class Generation(Extension):
            """The tag that transformers uses to mark what an assistant said; it writes its body."""

            tags = {"generation"}  # noqa: RUF012

            def parse(self, parser: Any) -> Any:
                line = next(parser.stream).lineno
                body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
                return nodes.Scope(body, lineno=line)

        self._errors = (TemplateError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError)
        day = datetime.now().astimezone()
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        # The date of the start, because a prompt that changed at midnight would end every session.
        environment.globals["strftime_now"] = day.strftime
        self.source = source
        self._names = dict(names)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise RenderError(f"its chat template is no Jinja: {error}") from error

    def write(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, header: bool) -> str:
        """Return the text of the messages, with the assistant's header if `header`. Raises RenderError."""
        try:
            return self._template.render(
                messages=list(messages),
                tools=list(tools) or None,
                add_generation_prompt=header,
                **self._names,
            )
        except RenderError:
            raise
        except self._errors as error:
            raise RenderError(f"the chat template cannot write these messages: {error}") from error


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(message: str) -> NoReturn:
    raise RenderError(f"the chat template refuses: {message}")
