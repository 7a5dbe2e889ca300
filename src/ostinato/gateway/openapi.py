"""The OpenAPI document of the routes and the bodies that they accept."""

from collections.abc import Mapping, Sequence
from typing import Any

from ostinato.gateway.dialects.request import MOST_STOPS, MOST_TOKENS
from ostinato.gateway.dialects.sampling import HOTTEST
from ostinato.gateway.signals.events import NAMES
from ostinato.gateway.signals.feedback import MOST_TAGS, YEAR_2000
from ostinato.types import SignalKind

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
OBJECT: Schema = {"type": "object"}
WHOLE: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": MOST_TOKENS}
HEAT: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": HOTTEST}
NULL: Schema = {"type": "null"}
STOPS: Schema = {
    "type": ["array", "null"],
    "items": {"type": "string", "minLength": 1},
    "maxItems": MOST_STOPS,
}
FLAG: Schema = {"type": ["boolean", "null"]}


def _part(*kinds: str) -> Schema:
    return _object({"type": {"enum": list(kinds)}, "text": TEXT}, "type", "text")


def _object(properties: Schema, *required: str, open_: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": open_,
    }


def _texts(*kinds: str) -> Schema:
    return {"anyOf": [TEXT, {"type": "array", "items": _part(*kinds)}]}


def _tool(properties: Schema, *required: str) -> Schema:
    return {"type": ["array", "null"], "items": _object(properties, *required)}


SHARED: Schema = {"model": {"$ref": "#/components/schemas/Model"}, "stream": FLAG, "temperature": HEAT}
SAID = _object(
    {"role": {"enum": ["system", "developer", "user", "assistant"]}, "content": _texts("text")},
    "role",
    "content",
    open_=False,
)
CALLING = _object(
    {
        "role": {"const": "assistant"},
        "content": {"anyOf": [TEXT, NULL]},
        "tool_calls": {
            "type": "array",
            "minItems": 1,
            "items": _object(
                {
                    "id": TEXT,
                    "type": {"const": "function"},
                    "function": _object({"name": TEXT, "arguments": TEXT}, "name", "arguments"),
                },
                "id",
                "type",
                "function",
            ),
        },
    },
    "role",
    "tool_calls",
    open_=False,
)
TOOL_ANSWER = _object(
    {"role": {"const": "tool"}, "tool_call_id": TEXT, "content": _texts("text")},
    "role",
    "tool_call_id",
    "content",
    open_=False,
)
CHAT = _object(
    SHARED
    | {
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [SAID, CALLING, TOOL_ANSWER]},
        },
        "max_tokens": WHOLE,
        "max_completion_tokens": WHOLE,
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**63 - 1},
        "stop": {"anyOf": [{"type": "string", "minLength": 1}, STOPS]},
        "stream_options": {"type": ["object", "null"]},
        "tools": _tool(
            {
                "type": {"const": "function"},
                "function": _object({"name": TEXT, "parameters": OBJECT}, "name"),
            },
            "type",
            "function",
        ),
    },
    "model",
    "messages",
    open_=False,
)
COUNT = _object(
    SHARED
    | {
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": _object({"role": {"const": "user"}, "content": _texts("text")}, "role", "content"),
        },
        "system": {"anyOf": [_texts("text"), NULL]},
        "max_tokens": WHOLE,
        "stop_sequences": STOPS,
        "metadata": {"type": ["object", "null"]},
        "tools": _tool({"name": {"type": "string", "minLength": 1}, "input_schema": OBJECT}, "name"),
    },
    "model",
    "messages",
    open_=False,
)
MESSAGES = COUNT | {
    "required": ["model", "messages", "max_tokens"],
    "properties": COUNT["properties"] | {"max_tokens": WHOLE | {"type": "integer"}},
}
RESPONSES = _object(
    SHARED
    | {
        "input": {
            "anyOf": [
                TEXT,
                {
                    "type": "array",
                    "minItems": 1,
                    "items": _object(
                        {
                            "type": {"const": "message"},
                            "role": {"enum": ["user", "assistant", "system", "developer"]},
                            "content": _texts("input_text", "output_text"),
                        },
                        "type",
                        "role",
                        "content",
                        open_=False,
                    ),
                },
            ]
        },
        "instructions": {"type": ["string", "null"]},
        "max_output_tokens": WHOLE,
        "tools": _tool(
            {"type": {"const": "function"}, "name": {"type": "string", "minLength": 1}, "parameters": OBJECT},
            "type",
            "name",
        ),
    },
    "model",
    "input",
    open_=False,
)
ABOUT: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 256}
TURN: Schema = {"type": ["integer", "null"], "minimum": 0, "maximum": 2**31 - 1}
KIND: Schema = {"enum": list(SignalKind)}
FEEDBACK = _object(
    {
        **dict.fromkeys(("session_id", "episode_id", "inference_id", "id", "edit"), ABOUT),
        "metric_name": KIND,
        "kind": KIND,
        "value": {"type": ["boolean", "number", "string", "array", "object"]},
        "turn": TURN,
        "received_at": {"type": "null"},
        "observed_at": {
            "type": ["number", "null"],
            "minimum": YEAR_2000,
            "description": "seconds since the epoch, not in the future",
        },
        "tags": {"type": ["object", "null"], "additionalProperties": TEXT, "maxProperties": MOST_TAGS},
        "dryrun": FLAG,
    },
    "value",
    open_=False,
) | {"anyOf": [{"required": ["metric_name"]}, {"required": ["kind"]}]}
LOGS = _object({"resourceLogs": {"type": "array", "items": OBJECT}})
EVENT = _object(
    {
        "id": {"type": "string", "minLength": 1, "maxLength": 256},
        "name": {"enum": sorted(NAMES)},
        "time": {"type": "number", "minimum": 0},
        "session_id": ABOUT,
        "turn": TURN,
        "attributes": {"type": ["object", "null"]},
    },
    "id",
    "name",
    "time",
    open_=False,
)
JOIN = _object(
    {"code": TEXT, "key": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "consent": FLAG},
    "code",
    "key",
    open_=False,
)
CONSENT = _object({"granted": {"type": "boolean"}}, "granted", open_=False)
ERROR = _object(
    {"error": _object({"message": TEXT, "code": {"type": ["string", "null"]}}, "message")}, "error"
)


METRICS: Schema = {
    "operationId": "metrics",
    "security": [{"key": []}, {}],
    "responses": {
        "200": {
            "description": "Prometheus text. Without a key from the gateway's own machine.",
            "content": {"text/plain": {"schema": TEXT}},
        },
        "4XX": {"description": "Refused.", "content": {"application/json": {"schema": ERROR}}},
    },
}


def document(models: Sequence[str]) -> Schema:
    """Return the OpenAPI 3.1 document, with the names of the models that are served."""
    streamed = {"text/event-stream": {"schema": _object({"event": TEXT, "data": TEXT}, "data")}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ostinato gateway", "version": "1"},
        "security": [{"key": []}],
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Model": {"type": "string", "enum": list(models)}},
        },
        "paths": {
            "/v1/chat/completions": {"post": _call("chat", CHAT, streamed)},
            "/v1/messages": {"post": _call("messages", MESSAGES, streamed)},
            "/v1/messages/count_tokens": {"post": _call("countTokens", COUNT)},
            "/v1/responses": {"post": _call("responses", RESPONSES, streamed)},
            "/v1/models": {"get": _read("models")},
            "/v1/models/{name}": {"get": _read("model") | {"parameters": [_path("name")]}},
            "/feedback": {"post": _call("feedback", FEEDBACK)},
            "/v1/events": {"post": _lines("events", EVENT)},
            "/v1/logs": {"post": _call("logs", LOGS)},
            "/join": {"post": _call("join", JOIN) | {"security": []}},
            "/consent": {"post": _call("consent", CONSENT)},
            "/metrics": {"get": METRICS},
            "/healthz": {"get": _read("healthz") | {"security": []}},
        },
    }


def _path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {"$ref": "#/components/schemas/Model"}}


def _call(name: str, body: Schema, more: Mapping[str, Any] | None = None) -> Schema:
    request_body = {"required": True, "content": {"application/json": {"schema": body}}}
    return {"operationId": name, "requestBody": request_body, "responses": _replies(more)}


def _lines(name: str, line: Schema) -> Schema:
    """Describe a body of JSON lines. A single line is a JSON body, which tools can generate."""
    call = _call(name, line)
    call["requestBody"]["content"]["application/x-ndjson"] = {"schema": TEXT}
    call["responses"]["207"] = {"description": "Some lines were refused; they are named."}
    return call


def _read(name: str) -> Schema:
    return {"operationId": name, "responses": _replies()}


def _replies(more: Mapping[str, Any] | None = None) -> Schema:
    good = {"application/json": {"schema": OBJECT}} | dict(more or {})
    refused = {"application/json": {"schema": ERROR}}
    statuses = {"4XX": "Refused: the message says what to change.", "503": "Away: come back later."}
    return {"200": {"description": "Answered.", "content": good}} | {
        status: {"description": text, "content": refused} for status, text in statuses.items()
    }
