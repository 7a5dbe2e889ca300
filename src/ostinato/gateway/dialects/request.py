"""The one form in which the gateway keeps a request of any dialect, and the checks that dialects share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ostinato.gateway.errors import ApiError, invalid
from ostinato.model.families import strict_json
from ostinato.types import Sampling

MODEL = "ostinato"
DEFAULT_MAX_TOKENS = 16_384
"""The limit for clients that set none; the engine's context ends a completion earlier."""
MOST_TOKENS = 2**31 - 1
MOST_STOPS = 16
MOST_TEXT = 4 * 2**20
"""Characters of a conversation: about a million tokens, more than any model reads.

Tokens take ten times the memory of their text, so a longer conversation is refused before it is tokenised.
"""

NO_RESULT = "[no result]"
"""The words that the model reads for a call whose result the client left out beside those of others."""

Message = Mapping[str, Any]
"""OpenAI's form: role, content as text, tool_calls; a tool is a function tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A checked request.

    >>> ChatRequest(model="ostinato", messages=({"role": "user", "content": "hi"},)).stream
    False
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    stream: bool = False
    include_usage: bool = False
    max_tokens: int = DEFAULT_MAX_TOKENS
    sampling: Sampling = field(default_factory=Sampling)
    seeded: bool = False
    """True when the client chose the seed of `sampling`; otherwise the gateway derives one for each turn."""
    stop: tuple[str, ...] = ()
    """Sampling ends with the token that completes one of these texts."""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """The shape, by name, of each tool that the client knows in another shape than a function."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """Fields of the body that name its session, for clients that send no header."""
    one_call: bool = False
    """True when the client reads at most one call of an answer: the first ends it."""
    echo: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the dialect repeats in its answer."""


class Models:
    """The names under which the served model may be requested.

    >>> Models(("claude-*",)).check("claude-haiku")
    """

    def __init__(self, aliases: tuple[str, ...] = ()) -> None:
        self._prefixes = tuple(alias[:-1] for alias in aliases if alias.endswith("*"))
        self._aliases = aliases
        self.names = (MODEL, *(alias for alias in aliases if not alias.endswith("*")))

    def check(self, model: str) -> None:
        """Raise ApiError 404 for a name that is neither served nor an alias."""
        if model in self.names or (self._prefixes and model.startswith(self._prefixes)):
            return
        known = ", ".join(map(repr, (MODEL, *self._aliases)))
        message = f"unknown model {model[:100]!r}, use {known}"
        raise ApiError(404, message, code="model_not_found", param="model")


def in_order_of_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with one result for each call of an answer, in the order of its calls.

    Ids tell a client which result is whose, in any order. Most templates write no ids, so a model reads the
    first result as the first call's. Raise ApiError 400 for results that it would read as another call's.
    """
    ordered: list[Message] = []
    at = 0
    while at < len(messages):
        ordered.append(messages[at])
        calls = [call.get("id") for call in messages[at].get("tool_calls") or ()]
        at += 1
        if calls and None not in calls:
            end = next((i for i in range(at, len(messages)) if messages[i]["role"] == "assistant"), None)
            ordered += _answered(calls, messages[at:end])
            at = len(messages) if end is None else end
    return tuple(ordered)


def _answered(calls: Sequence[object], following: Sequence[Message]) -> list[Message]:
    """Return the messages between two answers, the results of the first one's calls before all others."""
    results = [message for message in following if message["role"] == "tool"]
    if not results or any(result.get("tool_call_id") is None for result in results):
        return list(following)
    of_call: list[Message] = []
    for call in calls:
        missing = {"role": "tool", "tool_call_id": call, "content": NO_RESULT}
        found = next((result for result in results if result.get("tool_call_id") == call), missing)
        of_call.append(found)
        results = [result for result in results if result is not found]
    if results:
        name = str(results[0]["tool_call_id"])[:80]
        message = f"a result has the id {name!r}, for which the answer before it has no call, or no other one"
        raise invalid(message, "tool_call_id")
    return [*of_call, *(message for message in following if message["role"] != "tool")]


def check_length(chat: ChatRequest) -> None:
    """Raise ApiError 400 for a conversation that is longer than any model reads."""
    size = sum(map(_length, chat.messages))
    if size > MOST_TEXT:
        message = f"the messages have {size} characters, more than {MOST_TEXT}"
        raise ApiError(400, message, code="context_length_exceeded", param="messages")


def _length(message: Message) -> int:
    content = message.get("content") or ""
    arguments = (call["function"]["arguments"] for call in message.get("tool_calls") or ())
    return sum(map(len, (content, *(each for each in arguments if isinstance(each, str)))))


def field_names(text: str) -> set[str]:
    """Return the names of fields in `text`, which separates them with white space."""
    return set(text.split())


def check_object(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    return body


def check_fields(
    body: Mapping[str, Any], read: set[str], ignored: set[str], neutral: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raise ApiError 400 for a field that would change the answer and that the gateway cannot honour.

    Fields in `neutral` are accepted only with one of the values there, which ask for nothing. Null is always
    accepted.
    """
    for name, value in body.items():
        if name in read or name in ignored or value is None:
            continue
        if name not in neutral:
            raise invalid(f"{name} is not supported", name, code="unsupported_parameter")
        if value not in neutral[name]:
            allowed = neutral[name][0]
            raise invalid(f"{name} is only supported as {allowed!r}", name, code="unsupported_parameter")


def model_of(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str):
        raise invalid("model must be a string", "model")
    return model


def max_tokens_of(body: Mapping[str, Any], *names: str) -> int:
    """Return the value of the first of `names` that is there, or the default."""
    name = next((name for name in names if body.get(name) is not None), names[0])
    value: int = typed(body, name, int, DEFAULT_MAX_TOKENS)
    if not 1 <= value <= MOST_TOKENS:
        raise invalid(f"{name} must be at least 1 and at most {MOST_TOKENS}", name)
    return value


def offers_tools(choice: object) -> bool:
    """Return whether the tools are offered. Raise ApiError 400 for a choice that would force a call."""
    if choice not in (None, "auto", "none"):
        raise invalid("tool_choice is only supported as 'auto' or 'none'", "tool_choice")
    return choice != "none"


def stops_of(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the stop texts: a text or a list of texts, none of them empty."""
    value = body.get(name)
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise invalid(f"{name} must be text or a list of texts", name)
    if len(stops) > MOST_STOPS:
        raise invalid(f"{name} may hold at most {MOST_STOPS} texts", name)
    return tuple(stops)


def hints_of(body: Mapping[str, Any], *names: str) -> dict[str, str]:
    """Return those of the fields `names` that hold a text."""
    return {name: body[name] for name in names if isinstance(body.get(name), str)}


def text_of(content: object, where: str, kinds: set[str], joint: str = "") -> str:
    """Return the text of a string or of text parts.

    Raise ApiError 400 for a part whose type is not in `kinds`.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{where} must be text", where)
    return joint.join(part_text(part, f"{where}[{i}]", kinds) for i, part in enumerate(content))


def part_text(part: object, where: str, kinds: set[str]) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise invalid(f"{where} must be text or a list of text parts", where)
    if part["type"] not in kinds:
        message = f"{where} holds {part['type'][:40]!r}, this model reads only text"
        raise invalid(message, where, code="unsupported_content")
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid(f"{where}: a text part needs text", where)
    return text


def arguments_text(value: object, where: str) -> str:
    """Return the arguments of a call in a history, as the JSON text of an object.

    Clients write a call without arguments as nothing, as an empty text or as null. Raise ApiError 400 for
    other text that is no object: pasted into the prompt, the model would read what nobody wrote.
    """
    if value is None or (isinstance(value, str) and value.strip() in ("", "null")):
        return "{}"
    if not isinstance(value, str):
        raise invalid(f"{where} must be text: the JSON of an object", where)
    try:
        read = strict_json(value)
    except ValueError as error:
        raise invalid(f"{where} is no JSON ({error}): send the arguments whole, or {{}}", where) from error
    if not isinstance(read, dict):
        raise invalid(f"{where} must be the JSON of an object, as {{}} for no arguments", where)
    return value.strip()


def items(body: Mapping[str, Any], name: str, check: Callable[[Any, str], Any]) -> list[Any]:
    """Return `check(item, where)` for each item of the list `name`."""
    return [check(item, f"{name}[{i}]") for i, item in enumerate(typed(body, name, list, []))]


def merge(one: Message, other: Message) -> Message:
    """Merge two pieces of one assistant turn."""
    text = (one.get("content") or "") + (other.get("content") or "")
    calls = [*one.get("tool_calls", ()), *other.get("tool_calls", ())]
    reasoning = (one.get("reasoning_content") or "") + (other.get("reasoning_content") or "")
    return (
        {"role": "assistant", "content": text or None}
        | ({"reasoning_content": reasoning} if reasoning else {})
        | ({"tool_calls": calls} if calls else {})
    )


def function_tool(name: object, description: object, parameters: object, where: str) -> Message:
    """Return an OpenAI function tool, its fields in the order in which the prompt shows them."""
    if not isinstance(name, str) or not name:
        raise invalid(f"{where} must be a function tool with a name", where)
    if not isinstance(parameters, dict):
        raise invalid(f"{where}: the parameters must be an object", where)
    described = {"description": description} if isinstance(description, str) else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": parameters}}


def named_once(tools: Iterable[Message]) -> tuple[Message, ...]:
    """Return the tools; raises ApiError for two of one name, since a call could mean either."""
    found: dict[str, Message] = {}
    for tool in tools:
        name = tool["function"]["name"]
        if name in found:
            raise invalid(f"two tools are named {name[:64]!r}: give each a name of its own", "tools")
        found[name] = tool
    return tuple(found.values())


def typed(body: Mapping[str, Any], field: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = body.get(field)
    if value is None:
        return default
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise invalid(f"{field} must be {names}", field)
    return value
