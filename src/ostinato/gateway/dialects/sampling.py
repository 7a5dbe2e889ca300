"""The sampling settings of a request in any dialect: read here, honoured or refused by the engine."""

import json
from collections.abc import Mapping
from typing import Any

from ostinato.gateway.dialects.request import typed
from ostinato.gateway.errors import invalid
from ostinato.types import Sampling, Structure, StructureKind

HOTTEST = 2.0
NUMBERS = ("top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
MOST_STRUCTURE = 2**18
"""Characters of a schema, an expression or a grammar; engines compile it before the first token."""
VLLM_KINDS = {
    "json": StructureKind.JSON_SCHEMA,
    "regex": StructureKind.REGEX,
    "grammar": StructureKind.GRAMMAR,
    "json_object": StructureKind.JSON_OBJECT,
}
"""The kinds of structure by vLLM's names, in the field `structured_outputs` of a chat request."""


def sampling_of(body: Mapping[str, Any], structure: Structure | None = None) -> Sampling:
    """Return the settings, with the seed 0 where the body has none. Raise ApiError 400 naming a bad one."""
    temperature: float = typed(body, "temperature", (int, float), 1.0)
    if not 0 <= temperature <= HOTTEST:
        raise invalid(f"temperature must lie between 0 and {HOTTEST:.0f}", "temperature")
    top_k: int = typed(body, "top_k", int, 0)
    found: dict[str, Any] = {"temperature": float(temperature), "top_k": 0 if top_k == -1 else top_k}
    for name in NUMBERS:
        value = typed(body, name, (int, float), None)
        if value is not None:
            found[name] = float(value)
    try:
        return Sampling(**found, seed=seed_of(body) or 0, structure=structure)
    except (ValueError, OverflowError) as error:
        name = str(error).partition(" ")[0]
        raise invalid(str(error), name if name in body else None) from error


def seed_of(body: Mapping[str, Any]) -> int | None:
    value: int | None = typed(body, "seed", int, None)
    if value is not None and not 0 <= value < 2**63:
        raise invalid("seed must lie between 0 and 2**63 - 1", "seed")
    return value


def structure_of(form: object, field: str) -> Structure | None:
    """Return the structure of a `response_format` or of what the other dialects call `format`.

    The schema lies in `schema`, or in `json_schema.schema` as chat completions have it.
    """
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if not isinstance(form, dict) or kind not in ("text", "json_object", "json_schema"):
        raise invalid(f"{field} must have the type text, json_object or json_schema", field)
    if kind == "text":
        return None
    if kind == "json_object":
        return Structure(kind=StructureKind.JSON_OBJECT)
    inner = form.get("json_schema", form)
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if not isinstance(schema, dict):
        raise invalid(f"{field} needs a schema, an object", field)
    return _structure(StructureKind.JSON_SCHEMA, schema, field)


def vllm_structure_of(body: Mapping[str, Any], field: str = "structured_outputs") -> Structure | None:
    """Return the structure in vLLM's own field, which knows expressions and grammars too."""
    asked = {name: value for name, value in typed(body, field, dict, {}).items() if value is not None}
    if not asked:
        return None
    if len(asked) != 1 or not asked.keys() <= VLLM_KINDS.keys():
        raise invalid(f"{field} must have one of {', '.join(VLLM_KINDS)}", field)
    ((name, value),) = asked.items()
    if name == "json_object":
        return Structure(kind=StructureKind.JSON_OBJECT) if value is True else None
    return _structure(VLLM_KINDS[name], value, field)


def _structure(kind: StructureKind, value: object, field: str) -> Structure:
    text = json.dumps(value) if kind is StructureKind.JSON_SCHEMA and isinstance(value, dict) else value
    if not isinstance(text, str) or not text or len(text) > MOST_STRUCTURE:
        raise invalid(f"{field}: {kind.value} must be text of 1 to {MOST_STRUCTURE} characters", field)
    return Structure(kind=kind, text=text)
