"""The secret filter keeps secrets out of the record, and turns with secrets out of training.

A trainer needs the tokens of a turn exactly as the model read and sampled them. That leaves two honest ways
to treat a secret, and `SecretPolicy` chooses:

    withhold   The model reads the prompt as it is. In the stored turn a filler replaces every token of the
               secret. The turn is marked untrainable, and so are later ones whose prompts hold the secret.
    replace    The words of people and tools are redacted before the model reads them. The tokens stay exact
               and trainable, but the model cannot work with the secret.

Either way, a secret in the model's own output is withheld. Each message is searched once and remembered by
its digest, so a turn costs only what is new in it. Token ids are searched only when there is something to
hide.
"""

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from ostinato.gateway.config import SecretPolicy
from ostinato.gateway.dialects.request import ChatRequest, Message
from ostinato.model.families import Renderer
from ostinato.store.redaction.find import find, redact, redact_json
from ostinato.types import Completion, Turn

WITHHELD = "secret redacted"
MOST_REMEMBERED = 50_000
"""Texts whose secrets are remembered: about 10 MB."""
SHORTEST = 4


class SecretFilter:
    """Searches messages for secrets and hides them in what is stored."""

    def __init__(self, renderer: Renderer, secrets: SecretPolicy = "withhold") -> None:
        self._tokenizer = renderer.tokenizer
        self._filler = renderer.tokenizer.encode("*")[0]
        self._replaces = secrets == "replace"
        self._known: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def admit(self, chat: ChatRequest) -> ChatRequest:
        """Return the request as the model may read it."""
        if not self._replaces or not self._in_prompt(chat):
            return chat
        tools = tuple(redact_json(tool) for tool in chat.tools)
        return replace(chat, messages=tuple(map(self._replaced, chat.messages)), tools=tools)

    def mark(self, turn: Turn, chat: ChatRequest) -> tuple[Turn, Turn]:
        """Return the turn, untrainable if it holds a secret, and the form of it that may be stored."""
        secrets = self._in_prompt(chat)
        secrets |= self._in_text(self._tokenizer.decode(turn.completion.ids))
        if not secrets:
            return turn, turn
        marked = replace(turn, untrainable=turn.untrainable or WITHHELD)
        return marked, self._stored(marked, sorted(secrets))

    def _stored(self, turn: Turn, secrets: Sequence[str]) -> Turn:
        prompt, _ = self._hidden(turn.prompt_ids, secrets)
        return replace(
            turn,
            prompt_ids=prompt,
            completion=self._hidden_completion(turn.completion, secrets),
            broken=None if turn.broken is None else redact(turn.broken),
        )

    def _hidden_completion(self, completion: Completion, secrets: Sequence[str]) -> Completion:
        ids, hidden = self._hidden(completion.ids, secrets)
        logprobs = tuple(
            0.0 if here else logprob for here, logprob in zip(hidden, completion.logprobs, strict=True)
        )
        return replace(completion, ids=ids, logprobs=logprobs)

    def _hidden(self, ids: Sequence[int], secrets: Sequence[str]) -> tuple[tuple[int, ...], Sequence[int]]:
        """Return `ids` with a filler for each that has a byte of a secret, and a flag for each that was
        replaced."""
        pieces = [self._tokenizer.decode_bytes((id,)) for id in ids]
        text, hidden = b"".join(pieces), array("b", bytes(len(ids)))
        for secret in secrets:
            _mark(hidden, pieces, text, secret.encode(errors="replace"))
        kept = (self._filler if here else id for here, id in zip(hidden, ids, strict=True))
        return tuple(kept), hidden

    def _replaced(self, message: Message) -> Message:
        """Redact a message, except the assistant's: its tokens were sampled and stay."""
        if message["role"] == "assistant" or not self._in_message(message):
            return message
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": redact(content)}
        return {**message, "content": [{**part, "text": redact(part["text"])} for part in content or ()]}

    def _in_prompt(self, chat: ChatRequest) -> set[str]:
        secrets = {secret for message in chat.messages for secret in self._in_message(message)}
        return secrets.union(*(self._in_text(json.dumps(tool, ensure_ascii=False)) for tool in chat.tools))

    def _in_message(self, message: Message) -> frozenset[str]:
        return frozenset(secret for text in _texts(message) for secret in self._in_text(text))

    def _in_text(self, text: str) -> set[str]:
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        known = self._known.get(digest)
        if known is None:
            known = tuple(text[secret.start : secret.end] for secret in find(text))
            self._remember(digest, known)
        return {secret for secret in known if len(secret) >= SHORTEST}

    def _remember(self, digest: bytes, secrets: tuple[str, ...]) -> None:
        self._known[digest] = secrets
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif content:
        yield "".join(part["text"] for part in content)
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            yield arguments


def _mark(hidden: "array[int]", pieces: Sequence[bytes], text: bytes, secret: bytes) -> None:
    """Set `hidden` for each piece that shares a byte with an occurrence of `secret` in the joined `text`."""
    spans, at = [], text.find(secret)
    while at >= 0:
        spans.append((at, at + len(secret)))
        at = text.find(secret, at + 1)
    ends = accumulate(map(len, pieces)) if spans else ()
    for i, end in enumerate(ends):
        start = end - len(pieces[i])
        while spans and spans[0][1] <= start:
            spans.pop(0)
        if spans and spans[0][0] < end:
            hidden[i] = 1
