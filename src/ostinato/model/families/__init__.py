"""Families of chat formats: messages to token ids and back. `load_renderer` picks the one of a checkpoint.

Level 3 and above come in, and import from here. `base` has the protocol, `hermes` the family of our own
checkpoints, `chat_template` the renderer that any other checkpoint's own Jinja template drives, `calls` the
forms in which tool calls and reasoning are written, `loading` the choice.
"""

from ostinato.model.families.base import (
    Message,
    Parsed,
    ParsedCall,
    Renderer,
    RenderError,
    assistant_message,
    strict_json,
)
from ostinato.model.families.hermes import HermesRenderer, parse_text, skeletons
from ostinato.model.families.loading import load_renderer

__all__ = [
    "HermesRenderer",
    "Message",
    "Parsed",
    "ParsedCall",
    "RenderError",
    "Renderer",
    "assistant_message",
    "load_renderer",
    "parse_text",
    "skeletons",
    "strict_json",
]
