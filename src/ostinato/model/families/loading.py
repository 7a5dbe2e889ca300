"""The choice of a checkpoint's renderer: by its own chat template, or refused with the reason."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ostinato.extend import Registry, guarded
from ostinato.model.families.base import Renderer, RenderError
from ostinato.model.families.chat_template import TemplateRenderer
from ostinato.model.families.hermes import HermesRenderer
from ostinato.model.families.jinja_template import ChatTemplate
from ostinato.model.template import CHAT_TEMPLATE
from ostinato.model.tokenizer import Tokenizer

MakeRenderer = Callable[[Path, Tokenizer], Renderer | None]
FAMILIES: Registry[MakeRenderer] = Registry("family", {})
"""The families of plug-ins, which are asked before a checkpoint's own template is read."""


def family(name: str) -> Callable[[MakeRenderer], MakeRenderer]:
    """Return a decorator that adds a family of chat formats.

    The function gets a checkpoint's directory and its tokenizer, and returns a renderer, or None for a
    checkpoint that is none of its family.
    """

    def add(make: MakeRenderer) -> MakeRenderer:
        FAMILIES.add(name, guarded(f"family {name}", make))
        return make

    return add


def load_renderer(directory: Path) -> Renderer:
    """Return the renderer that writes the text of the chat template in `directory`.

    Raises TokenizerError for a tokenizer that cannot be read, and RenderError, which names the directory, for
    a checkpoint without a template, or with one for which the invariants of a renderer do not hold.
    """
    directory = Path(directory)
    tokenizer, config = Tokenizer.load(directory), _json(directory / "tokenizer_config.json")
    for make in FAMILIES.values():
        if (renderer := make(directory, tokenizer)) is not None:
            return renderer
    source = _template(directory, config)
    if source == CHAT_TEMPLATE:
        return HermesRenderer(tokenizer)
    names = {key: _content(config.get(key)) for key in ("bos_token", "eos_token", "unk_token", "pad_token")}
    try:
        template = ChatTemplate(source, {key: text for key, text in names.items() if text is not None})
        return TemplateRenderer(tokenizer, template, _ends(directory, tokenizer, names["eos_token"]))
    except RenderError as error:
        raise RenderError(f"{directory}: {error}") from error


def _template(directory: Path, config: dict[str, Any]) -> str:
    path = directory / "chat_template.jinja"
    source = path.read_text() if path.is_file() else config.get("chat_template")
    if isinstance(source, list):
        named = {one.get("name"): one.get("template") for one in source if isinstance(one, dict)}
        source = named.get("tool_use") or named.get("default")
    if not isinstance(source, str) or not source.strip():
        raise RenderError(
            f"{directory} has no chat template: it is a base model, or its chat_template.jinja was not "
            "copied. Take the instruct checkpoint, or add chat_template.jinja"
        )
    return source


def _ends(directory: Path, tokenizer: Tokenizer, eos: str | None) -> tuple[int, ...]:
    """Return the ids that the checkpoint itself names as ends of a completion."""
    found = _json(directory / "generation_config.json").get("eos_token_id")
    if found is None:
        found = _json(directory / "config.json").get("eos_token_id")
    ids = list(found) if isinstance(found, list) else [found] if isinstance(found, int) else []
    end = tokenizer.id_of(eos) if eos is not None else None
    return tuple(dict.fromkeys([*ids, *([] if end is None else [end])]))


def _content(token: object) -> str | None:
    """Return the text of a special token, which is written as a text or as a table."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RenderError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise RenderError(f"{path}: holds no JSON object")
    return value
