"""Exact tokens over the turns of a session: its messages as a graph.

A node is the end of a recorded turn. It stands for all messages up to there and for the ids that the model
read and sampled. A request continues from the longest node that its messages begin with:

    root ──► turn 0 ──► turn 1 ──► turn 2        segment 0, each turn extends the one before
                 └────► turn 3 ──► turn 4        segment 1: the client went back, or two asked at once
    root' ─► turn 5                              segment 2: a compaction, a sub-agent, a title

A request that continues from the end of a segment extends it. One that continues from the middle forks: it
starts a new segment, which begins with the same sampled ids. A history without a known node is rendered
anew in a new segment. When a history holds an answer that this session never gave, the turn is recorded but
marked untrainable, because the tokens behind that answer are not known.
"""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ostinato.gateway.dialects.request import ChatRequest, Message
from ostinato.gateway.errors import ApiError, invalid
from ostinato.gateway.offload import offload
from ostinato.gateway.tokens.reply_parser import START, answer_of, next_digest, parse_reply, without_defaults
from ostinato.model.families import Renderer, RenderError
from ostinato.types import FinishReason, Session, Turn

MOST_PROMPT = 2**20
"""Tokens that a prompt may have: more than any model reads."""
MOST_SEGMENTS = 16
"""Segments whose ids are held. A request that continues an older one starts a new segment."""
MOST_STARTS = 24
"""Answers in a history that are tried, after a restart, as the first of a recorded segment."""
MOST_READINGS = 8
INT32 = "i"


class Segment:
    """Turns that extend each other: the ids of the last one begin with those of all before it."""

    def __init__(self, number: int, untrainable: str | None, first: int | None = None) -> None:
        self.number = number
        self.first = first
        """Index of the turn that started it; None for a segment that was read from the store."""
        self.untrainable = untrainable
        """The reason why it cannot be trained on; segments that fork from it inherit it."""
        self.ids = array(INT32)
        self.busy = False
        """True while a turn that extends it is being sampled."""
        self.closed = False
        """True when a turn under way may still extend it as it was before a failed commit: no other turn
        may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNode:
    """The end of a turn: the first `length` ids of its segment."""

    segment: Segment
    length: int
    stopped: bool
    """True when the turn ended in a stop token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPosition:
    """The position in the graph from which a request continues, with its prompt.

    >>> GraphPosition(prompt_ids=(1,), segment=None, untrainable=None).untrainable
    """

    prompt_ids: tuple[int, ...]
    segment: Segment | None
    """The segment that is extended; None starts a new one."""
    untrainable: str | None
    how: str = "root"
    """`extended`, `forked` or `root`."""


class HeldConversation:
    """One session as the gateway holds it in memory."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()
        """Held while the session is read from the store and a turn is planned."""
        self.order = asyncio.Lock()
        """Held for the whole turn by clients that number their turns."""
        self.loaded = False
        """False until the session was read from the store."""
        self.recorded = False
        self.turns = 0
        """Index of the next turn."""
        self.waiting = 0
        """Requests that wait for their answer."""
        self.last: Turn | None = None
        self._segments: dict[int, Segment] = {}
        self._next_segment = 0
        self._nodes: dict[bytes, TurnNode] = {}
        self._answers: set[bytes] = set()
        """Digests of every answer of this session, and of those in its first request."""
        self._planned: set[int] = set()
        """Indices of turns that are being sampled."""
        self._uncommitted: dict[int, Segment] = {}
        """The segments, by index, of turns that are not committed yet."""
        self._closed: set[int] = set()
        self._unread = 0
        """The number of times that the store may still be read for nodes that are not held."""

    @property
    def in_use(self) -> bool:
        return self.lock.locked() or self.order.locked() or self.waiting > 0 or bool(self._uncommitted)

    @property
    def is_sampling(self) -> bool:
        """True while a turn is requested, being sampled, or not committed yet."""
        return self.waiting > 0 or bool(self._planned) or bool(self._uncommitted)

    @property
    def size(self) -> int:
        """The number of ids it holds."""
        return sum(len(segment.ids) for segment in self._segments.values())

    def load(self, session: Session | None, turns: Sequence[Turn]) -> None:
        """Take over what the store has; the messages behind its turns are unknown until `recall`."""
        self.loaded, self.recorded = True, session is not None
        self.session = session or self.session
        if turns and (self.last is None or self.last.index < turns[-1].index):
            self.last = turns[-1]
        # Turns under way keep their numbers, though the store does not have them yet.
        self.turns = max(self.turns, self.last.index + 1 if self.last else 0)
        self._next_segment = max([self._next_segment, *(turn.segment + 1 for turn in turns)])
        self._segments, self._nodes, self._answers = {}, {}, set()
        self._unread = MOST_READINGS if self.turns else 0

    def overtaken(self) -> None:
        """Have the session read again, since the store has turns that are not held.

        Segments of turns under way are closed: only those turns may still extend them.
        """
        held = self._segments.values()
        self._closed |= {one.number for one in held if one.busy}
        self._closed |= {one.number for one in self._uncommitted.values()}
        self.loaded, self.last = False, None

    def committed(self, index: int) -> None:
        """Note that the store has the turn."""
        del self._uncommitted[index]

    def failed(self, index: int) -> None:
        """Note that the store refused the turn: before the next turn the session is read again."""
        segment = self._uncommitted.pop(index)
        self.overtaken()
        if index == self.turns - 1:
            self.turns = index
        if segment.first == index and segment.number == self._next_segment - 1:
            self._next_segment = segment.number

    def is_partial(self, chat: ChatRequest, digests: Sequence[bytes]) -> bool:
        """Return whether the store may have more of this history than is held, as after a restart."""
        answers = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
        return bool(self._unread and answers) and digests[answers[-1] + 1] not in self._nodes

    async def find_position(
        self, chat: ChatRequest, digests: Sequence[bytes], renderer: Renderer, size: int = 0
    ) -> GraphPosition:
        """Return the position from which the request continues; its segment is busy until `add` or `leave`.

        `size` is the size of the request in bytes. Raise ApiError 400 for text that cannot be rendered, or
        that has more tokens than any model reads.
        """
        if self.last is None:
            self._answers |= {next_digest(START, m) for m in chat.messages if m["role"] == "assistant"}
        known = next((i for i in range(len(digests) - 1, 0, -1) if digests[i] in self._nodes), 0)
        node = self._nodes.get(digests[known])
        untrainable = self._foreign(chat.messages, known) or (node.segment.untrainable if node else None)
        try:
            node, prompt = await offload(size, _continued, node, chat, known, renderer)
        except RenderError as error:
            raise invalid(f"messages cannot be rendered: {error}", "messages") from error
        if len(prompt) > MOST_PROMPT:
            message = f"the prompt has {len(prompt)} tokens, more than {MOST_PROMPT}"
            raise ApiError(400, message, code="context_length_exceeded", param="messages")
        segment = node.segment if node and _at_end(node) and _same_trust(node, untrainable) else None
        if segment is not None:
            segment.busy = True
        how = "extended" if segment else "forked" if node else "root"
        return GraphPosition(prompt_ids=prompt, segment=segment, untrainable=untrainable, how=how)

    def leave(self, position: GraphPosition, index: int) -> None:
        """Release a position whose turn did not take place. Without effect after `add`."""
        if index not in self._planned:
            return
        self._planned.discard(index)
        if position.segment is not None:
            position.segment.busy = False
        if index == self.turns - 1:
            self.turns = index

    def segment_of(self, position: GraphPosition) -> int:
        """Return the segment's number. A new segment gets its number when its first turn is sampled."""
        if position.segment is not None:
            return position.segment.number
        self._next_segment += 1
        return self._next_segment - 1

    def add(self, turn: Turn, position: GraphPosition, at: bytes, answer: Message) -> bytes:
        """Add a sampled turn to the graph; `at` is the digest before it. Return the digest of the new node.

        A call of `committed` or of `failed` must follow.
        """
        segment = position.segment or self._new_segment(turn.segment, turn.untrainable, turn.index)
        self._planned.discard(turn.index)
        self._uncommitted[turn.index] = segment
        segment.busy = False
        held = len(segment.ids)  # the prompt begins with them: see `_continued`
        segment.ids.extend(array(INT32, turn.prompt_ids[held:] + turn.completion.ids))
        if self.last is None or turn.index > self.last.index:
            self.last = turn
        return self._note(at, turn, segment, answer)

    def plan(self) -> int:
        """Return the index of a turn that begins now."""
        index = self.turns
        self._planned.add(index)
        self.turns += 1
        return index

    def recall(
        self, turns: Sequence[Turn], chat: ChatRequest, digests: Sequence[bytes], renderer: Renderer
    ) -> None:
        """Restore, from recorded turns, the nodes that the request's messages pass: id by id, never by
        guess."""
        self._unread -= 1
        replies = [
            parse_reply(renderer, turn.completion, chat.stop, one_call=chat.one_call, tools=chat.tools)
            for turn in turns
        ]
        answers = [answer_of(turn, reply).message for turn, reply in zip(turns, replies, strict=True)]
        known = dict(zip((turn.id for turn in turns), without_defaults(answers, chat.tools), strict=True))
        self._answers |= {next_digest(START, answer) for answer in known.values()}
        by_prompt: dict[tuple[int, ...], list[Turn]] = {}
        for turn in turns:
            by_prompt.setdefault(turn.prompt_ids, []).append(turn)
        passed = _passed(by_prompt, known, chat, renderer)
        newest = {turn.segment: turn for turn in turns}
        for at, turn in passed:
            self._restore(turn, newest[turn.segment], chat, digests, at)

    def _restore(
        self, turn: Turn, newest: Turn, chat: ChatRequest, digests: Sequence[bytes], at: int
    ) -> None:
        segment = self._segments.get(turn.segment) or self._new_segment(turn.segment, turn.untrainable)
        if len(newest.prompt_ids) + len(newest.completion.ids) > len(segment.ids):
            segment.ids = array(INT32, newest.prompt_ids + newest.completion.ids)
        self._note(digests[at], turn, segment, chat.messages[at])
        earlier = (m for m in chat.messages[:at] if m["role"] == "assistant")
        self._answers |= {next_digest(START, message) for message in earlier}

    def _note(self, at: bytes, turn: Turn, segment: Segment, answer: Message) -> bytes:
        length = len(turn.prompt_ids) + len(turn.completion.ids)
        stopped = turn.completion.finish is FinishReason.STOP
        digest = next_digest(at, answer)
        self._nodes[digest] = TurnNode(segment=segment, length=length, stopped=stopped)
        self._answers.add(next_digest(START, answer))
        return digest

    def _new_segment(self, number: int, untrainable: str | None, first: int | None = None) -> Segment:
        segment = self._segments[number] = Segment(number, untrainable, first)
        segment.closed = number in self._closed
        if len(self._segments) > MOST_SEGMENTS:
            idle = next((n for n, one in self._segments.items() if not one.busy and n != number), number)
            dropped, self._unread = self._segments.pop(idle), MOST_READINGS
            self._nodes = {d: node for d, node in self._nodes.items() if node.segment is not dropped}
        return segment

    def _foreign(self, messages: Sequence[Message], known: int) -> str | None:
        """Return why the history is inexact: it holds an answer that this session never gave. Else None."""
        for i in range(known, len(messages)):
            message = messages[i]
            if message["role"] == "assistant" and next_digest(START, message) not in self._answers:
                return "the history holds an answer that this session did not give"
        return None


def _at_end(node: TurnNode) -> bool:
    segment = node.segment
    return node.length == len(segment.ids) and not segment.busy and not segment.closed


def _same_trust(node: TurnNode, untrainable: str | None) -> bool:
    """Return whether a turn may share the node's segment: a segment is trained whole, so all exact or
    none."""
    return (node.segment.untrainable is None) == (untrainable is None)


def _continued(
    node: TurnNode | None, chat: ChatRequest, known: int, renderer: Renderer
) -> tuple[TurnNode | None, tuple[int, ...]]:
    """Return the prompt, and the node that it extends, if there is one.

    A template that changes the history, as where it drops earlier reasoning, makes a new segment of it.
    """
    if node is None or not renderer.continues(chat.messages, known, chat.tools):
        return None, tuple(renderer.render(chat.messages, chat.tools))
    added = renderer.extend(chat.messages[known:], stopped=node.stopped)
    return node, (*node.segment.ids[: node.length], *added)


def _passed(
    by_prompt: Mapping[tuple[int, ...], list[Turn]],
    known: Mapping[str, Message],
    chat: ChatRequest,
    renderer: Renderer,
) -> list[tuple[int, Turn]]:
    """Return the longest chain of recorded turns along the request's answers: (index of the message,
    turn)."""
    answers = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
    best: list[tuple[int, Turn]] = []
    for start in range(min(len(answers), MOST_STARTS)):
        chain = _chain(by_prompt, known, chat, renderer, answers[start:])
        if chain and (not best or chain[-1][0] > best[-1][0]):
            best = chain
        if best and best[-1][0] == answers[-1]:
            break
    return best


def _chain(
    by_prompt: Mapping[tuple[int, ...], list[Turn]],
    known: Mapping[str, Message],
    chat: ChatRequest,
    renderer: Renderer,
    answers: Sequence[int],
) -> list[tuple[int, Turn]]:
    chain: list[tuple[int, Turn]] = []
    try:
        expected = tuple(renderer.render(chat.messages[: answers[0]], chat.tools))
        for at, following in zip(answers, [*answers[1:], None], strict=True):
            wanted = next_digest(START, chat.messages[at])
            candidates = by_prompt.get(expected, ())
            turn = next((turn for turn in candidates if next_digest(START, known[turn.id]) == wanted), None)
            if turn is None:
                break
            chain.append((at, turn))
            if following is not None:
                stopped = turn.completion.finish is FinishReason.STOP
                added = renderer.extend(chat.messages[at + 1 : following], stopped=stopped)
                expected = (*turn.prompt_ids, *turn.completion.ids, *added)
    except RenderError:
        return chain
    return chain
