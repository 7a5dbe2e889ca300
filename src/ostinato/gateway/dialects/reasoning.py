"""Reasoning in the field that each dialect has for it, and back.

    chat        `reasoning_content` and `reasoning` of the assistant's message
    messages    a `thinking` block with a signature
    responses   a `reasoning` item with its text and, when the client includes it, `encrypted_content`

In the gateway's one form it is the message's `reasoning_content`. A client that sends it back, changes it or
leaves it out continues the same turn: the ids that the model read and sampled are kept, and are what the next
prompt begins with. What comes back counts only where a history must be rendered anew, and there reasoning
without our signature is left out, because another model wrote it or it was changed. The signature is a digest
and no secret: a history that this session did not give is never trained on, whoever signed it.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any

from ostinato.gateway.dialects.base import Answer, wire_id

MARK = b"ostinato reasoning 1"
FIELD = "reasoning_content"
"""The field of a message that holds its reasoning, which chat templates read too."""
NAMES = (FIELD, "reasoning")
"""The names of that field in chat completions: engines and clients use the one or the other."""


def sign(text: str) -> str:
    """Return the signature of reasoning that this gateway gave."""
    digest = hashlib.blake2b(text.encode(errors="replace"), key=MARK, digest_size=32).digest()
    return base64.b64encode(digest).decode()


def in_message(text: object) -> dict[str, str]:
    """Return the fields of a message with this reasoning; none without."""
    return {FIELD: text} if isinstance(text, str) and text else {}


def for_chat(text: str) -> dict[str, str]:
    """Return the fields of a chat message or delta with this reasoning; none without."""
    return dict.fromkeys(NAMES, text) if text else {}


def of_chat(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a chat with its reasoning under FIELD alone."""
    text = next((message[name] for name in NAMES if isinstance(message.get(name), str)), None)
    return {name: value for name, value in message.items() if name not in NAMES} | in_message(text)


def block(text: str) -> dict[str, str]:
    """Return the block of an Anthropic message."""
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


def of_block(block: Mapping[str, Any]) -> str:
    """Return the reasoning in a `thinking` block; empty if its signature is not ours."""
    text = block.get("thinking")
    return text if isinstance(text, str) and block.get("signature") == sign(text) else ""


def item(answer: Answer, *, encrypted: bool) -> dict[str, Any]:
    """Return the reasoning item of a response."""
    text = answer.reasoning
    sealed = base64.b64encode(text.encode(errors="replace")).decode() + "." + sign(text)
    return {
        "id": wire_id("rs_", answer.turn.id),
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        "encrypted_content": sealed if encrypted else None,
    }


def of_item(item: Mapping[str, Any]) -> str:
    """Return the reasoning in an item: what its `encrypted_content` holds; empty if that is not ours."""
    sealed, _, signature = str(item.get("encrypted_content") or "").partition(".")
    try:
        text = base64.b64decode(sealed, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return text if signature == sign(text) else ""
