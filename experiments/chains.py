"""A world in which sessions outlive their context, and a transformer that practises in it.

A session is told three keys. It then reads eight facts, one token for a key with its value, and is asked for
the values of its three keys: only all three right are a success. The whole is 14 tokens beyond the first
instructions. With half or a quarter of them at a time the session writes summaries of three keys with their
facts on the way, from which it goes on: whatever they leave out is lost. Held out are sets of three keys.

The policy is the package's own decoder with 0.09 million weights, taught once by a script whose summaries
list in 3 of 10 cases what was read last, instead of what will be asked. Turns, samples, groups, advantages,
loss, corrections, trainer and optimizer are the package's own. An engine, a harness and a sandbox are not in
it: sessions of one shape are sampled together, token by token.

Shapes: B sessions, T tokens, H heads, D size of a head, V tokens of the vocabulary.
"""
# ruff: noqa: N803, N806, N815

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder
from ostinato.train.batch import Row
from ostinato.train.local import DecoderModel
from ostinato.train.objective.group import above_the_others
from ostinato.train.policy import supervised_step
from ostinato.train.samples import samples_of
from ostinato.types import Completion, FinishReason, Group, Turn, TurnKind

KEYS, VALUES, ASKED = 8, 8, 3
PAD, BEGIN, SUMMARISE, NOTE = range(4)
KEY = 4
VALUE = KEY + KEYS
FACT = VALUE + VALUES
SHAPE = ModelConfig(
    vocab_size=FACT + KEYS * VALUES,
    hidden_size=64,
    layers=2,
    heads=2,
    kv_heads=2,
    intermediate_size=128,
    max_positions=64,
)
PARTS = {
    "full": ((8, 3),),
    "half": ((7, 0), (1, 3)),
    "quarter": ((4, 0), (4, 0), (0, 2), (0, 1)),
}
"""The facts read and the keys asked for in each segment, at each share of the 14 tokens, of which a fact is
one, and a question with its answer two."""
CARELESS = 0.3
"""The share of the teacher's summaries that list what was read last."""
HELD_OUT_SETS, TASKS_OF_A_SET = 24, 12
OWN, ORACLE, EMPTY = "own", "oracle", "empty"
"""The writers of a summary: the policy, one that knows everything read so far, one that writes nothing."""
TEACH_STEPS, TEACH_BATCH, TEACH_RATE = 450, 24, 3e-3
SETS = tuple(itertools.combinations(range(KEYS), ASKED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One task: the keys that will be asked for, in order, and the facts in the order of reading.

    >>> Errand(id="e", asked=(1,), facts=((0, 5), (1, 7))).answers
    (7,)
    """

    id: str
    asked: tuple[int, ...]
    facts: tuple[tuple[int, int], ...]

    @property
    def answers(self) -> tuple[int, ...]:
        known = dict(self.facts)
        return tuple(known[key] for key in self.asked)

    @property
    def cluster(self) -> str:
        """What is held out: the set of keys that are asked for."""
        return "".join(map(str, sorted(self.asked)))


def held_out_sets() -> frozenset[tuple[int, ...]]:
    """Return the sets of keys that no training sees."""
    return frozenset(Random(0).sample(SETS, HELD_OUT_SETS))


def errands(seed: int) -> Iterator[Errand]:
    """Yield training tasks without end."""
    chance, sets = Random(seed), sorted(set(SETS) - held_out_sets())
    return (_errand(f"{seed}/{number}", chance.choice(sets), chance) for number in itertools.count())


def held_out() -> list[Errand]:
    """Return the held-out tasks."""
    chance = Random(-1)
    return [
        _errand(f"held-out/{number}", keys, chance)
        for number, keys in enumerate(sorted(held_out_sets()) * TASKS_OF_A_SET)
    ]


def _errand(id: str, keys: Sequence[int], chance: Random) -> Errand:
    order = chance.sample(range(KEYS), KEYS)
    facts = tuple((key, chance.randrange(VALUES)) for key in order)
    return Errand(id=id, asked=tuple(chance.sample(sorted(keys), ASKED)), facts=facts)


class _Remembered:
    """Keys and values of the tokens so far, of sessions of one shape: a `KeyValueCache`."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor) -> Tensor:
        if layer in self._kept:
            before_k, before_v = self._kept[layer]
            k_BHTD, v_BHTD = torch.cat([before_k, k_BHTD], 2), torch.cat([before_v, v_BHTD], 2)
        self._kept[layer] = k_BHTD, v_BHTD
        new, all_of_them = q_BHTD.shape[2], k_BHTD.shape[2]
        mask = torch.ones(new, all_of_them, dtype=torch.bool).tril(all_of_them - new)
        return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, attn_mask=mask)


@dataclass(slots=True)
class _Said:
    """A turn of all sessions, [B, n]: what was read before it in its segment, its tokens and their chance."""

    segment: int
    prompt_BT: Tensor
    ids_BT: Tensor
    logprobs_BT: Tensor
    kind: TurnKind


class _Segment:
    """The tokens of one segment of all sessions, read or sampled."""

    def __init__(self, decoder: Decoder, begin_BT: Tensor, number: int, chance: torch.Generator) -> None:
        self._decoder, self._chance, self._number = decoder, chance, number
        self._cache = _Remembered()
        self.ids_BT = begin_BT[:, :0]
        self.read(begin_BT)

    def read(self, ids_BT: Tensor) -> None:
        B, T = ids_BT.shape
        if not T:
            return
        start = self.ids_BT.shape[1]
        positions = torch.arange(start, start + T).expand(B, T)
        hidden, _ = self._decoder.hidden(ids_BT, positions=positions, cache=self._cache)
        self._logprobs_BV = self._decoder.head(hidden[:, -1]).log_softmax(-1)
        self.ids_BT = torch.cat([self.ids_BT, ids_BT], 1)

    def say(self, count: int, kind: TurnKind, forced_BT: Tensor | None = None) -> _Said:
        """Sample so many tokens, or take the given ones."""
        prompt_BT, logprobs = self.ids_BT, []
        for place in range(count):
            if forced_BT is None:
                ids_B1 = torch.multinomial(self._logprobs_BV.exp(), 1, generator=self._chance)
            else:
                ids_B1 = forced_BT[:, place : place + 1]
            logprobs.append(self._logprobs_BV.gather(1, ids_B1))
            self.read(ids_B1)
        ids_BT = self.ids_BT[:, prompt_BT.shape[1] :]
        return _Said(self._number, prompt_BT, ids_BT, torch.cat(logprobs, 1), kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One session: its turns, and if all answers were right."""

    turns: tuple[Turn, ...]
    solved: bool


@torch.no_grad()
def play(
    decoder: Decoder,
    tasks: Sequence[Errand],
    share: str,
    chance: torch.Generator,
    *,
    version: int = 0,
    summaries: str = OWN,
) -> list[Played]:
    """Sample a session for each task at a share of the context; `version` is the decoder's."""
    first_BT = torch.tensor([[BEGIN, *(KEY + key for key in task.asked)] for task in tasks])
    facts_BT = torch.tensor([[fact(*pair) for pair in task.facts] for task in tasks])
    begin_BT, said, read, answered = first_BT, list[_Said](), 0, 0
    for number, (facts, asked) in enumerate(PARTS[share]):
        segment = _Segment(decoder, begin_BT, number, chance)
        segment.read(facts_BT[:, read : read + facts])
        read += facts
        for _ in range(asked):
            segment.read(_asking(tasks, answered))
            said.append(segment.say(1, TurnKind.MAIN))
            answered += 1
        if number + 1 < len(PARTS[share]):
            segment.read(torch.full((len(tasks), 1), SUMMARISE))
            given = None if summaries == OWN else _given(tasks, read, summaries)
            said.append(segment.say(2 * ASKED, TurnKind.SUMMARY, given))
            begin_BT = torch.cat([first_BT, torch.full((len(tasks), 1), NOTE), said[-1].ids_BT], 1)
    return _sessions(tasks, share, said, version)


def _asking(tasks: Sequence[Errand], number: int) -> Tensor:
    return torch.tensor([[KEY + task.asked[number]] for task in tasks])


def _given(tasks: Sequence[Errand], read: int, summaries: str) -> Tensor:
    """Return the summaries of a writer that is not the policy."""
    known = [dict(task.facts[:read]) for task in tasks]
    written = [
        careful(task.asked, each) if summaries == ORACLE else [PAD] * (2 * ASKED)
        for task, each in zip(tasks, known, strict=True)
    ]
    return torch.tensor(written)


def careful(asked: Sequence[int], known: Mapping[int, int]) -> list[int]:
    """Return the summary of what will be asked: each key, and its fact or padding where it is not known."""
    return [x for key in asked for x in (KEY + key, fact(key, known[key]) if key in known else PAD)]


def careless(new: Sequence[tuple[int, int]]) -> list[int]:
    """Return the summary of what was read last."""
    ids = [x for pair in new[-ASKED:] for x in (KEY + pair[0], fact(*pair))]
    return ids + [PAD] * (2 * ASKED - len(ids))


def fact(key: int, value: int) -> int:
    """Return the token of a fact."""
    return FACT + key * VALUES + value


def _sessions(tasks: Sequence[Errand], share: str, said: Sequence[_Said], version: int) -> list[Played]:
    """Return the turns of each session, and if it answered everything."""
    answers_BT = torch.cat([each.ids_BT for each in said if each.kind is TurnKind.MAIN], 1) - VALUE
    right = [tuple(row) == task.answers for row, task in zip(answers_BT.tolist(), tasks, strict=True)]
    rows = [
        list(zip(each.prompt_BT.tolist(), each.ids_BT.tolist(), each.logprobs_BT.tolist(), strict=True))
        for each in said
    ]
    return [
        Played(
            turns=tuple(
                _turn(f"{task.id}/{share}/{place}", index, each, turn[place], version)
                for index, (each, turn) in enumerate(zip(said, rows, strict=True))
            ),
            solved=right[place],
        )
        for place, task in enumerate(tasks)
    ]


def _turn(
    session: str, index: int, said: _Said, row: tuple[list[int], list[int], list[float]], version: int
) -> Turn:
    prompt, ids, logprobs = row
    return Turn(
        session_id=session,
        index=index,
        segment=said.segment,
        arm="study",
        prompt_ids=tuple(prompt),
        completion=Completion(
            ids=tuple(ids),
            logprobs=tuple(min(0.0, each) for each in logprobs),
            versions=(version,) * len(ids),
            finish=FinishReason.STOP,
        ),
        started_at=0.0,
        latency_s=0.0,
        kind=said.kind,
    )


def groups_of(
    decoder: Decoder,
    tasks: Sequence[Errand],
    share: str,
    chance: torch.Generator,
    *,
    version: int,
    size: int = 8,
    summaries: bool = True,
) -> list[Group]:
    """Sample a group of sessions for each task; without `summaries` their tokens are left out of the loss."""
    played = play(decoder, [task for task in tasks for _ in range(size)], share, chance, version=version)
    groups = []
    for number, task in enumerate(tasks):
        own = played[number * size : (number + 1) * size]
        rewards = [float(each.solved) for each in own]
        pairs = zip(own, above_the_others(rewards), strict=True)
        rows = [row for each, by in pairs for row in samples_of(each.turns, by, summaries=summaries)]
        groups.append(Group(id=task.id, prompt=task.id, samples=tuple(rows), rewards=tuple(rewards)))
    return groups


def solved(decoder: Decoder, share: str, *, seed: int, summaries: str = OWN) -> list[bool]:
    """Return which held-out tasks one session each solves."""
    chance = torch.Generator().manual_seed(seed)
    return [each.solved for each in play(decoder, held_out(), share, chance, summaries=summaries)]


def lesson(task: Errand, share: str, chance: Random) -> list[Row]:
    """Return the teacher's session as rows, of which what the teacher said counts.

    At full context it is asked for the other keys as well, which teaches to look up in fewer steps.
    """
    first = [BEGIN, *(KEY + key for key in task.asked)]
    begin, read, answered, rows = first, 0, 0, []
    known: dict[int, int] = {}
    for facts, asked in PARTS[share]:
        new = task.facts[read : read + facts]
        read, known = read + facts, known | dict(new)
        ids = begin + [fact(*pair) for pair in new]
        weights = [0.0] * len(ids)
        others = [key for key in range(KEYS) if key not in task.asked] if share == "full" else []
        for key in (*task.asked[answered : answered + asked], *others):
            ids += [KEY + key, VALUE + known.get(key, 0)]
            weights += [0.0, float(key in known)]
        answered += asked
        if len(rows) + 1 < len(PARTS[share]):
            own, blind = careful(task.asked, known), careless(new)
            summary = blind if chance.random() < CARELESS else own
            ids, weights = [*ids, SUMMARISE, *summary], [*weights, 0.0, *[1.0] * len(summary)]
            known = dict(divmod(each - FACT, VALUES) for each in summary if each >= FACT)
            begin = [*first, NOTE, *summary]
        rows.append(Row(ids=tuple(ids), weights=tuple(weights)))
    return rows


def copied(decoder: Decoder) -> Decoder:
    """Return a decoder with the same weights."""
    other = Decoder(SHAPE, initialise=False)
    other.load_state_dict(decoder.state_dict())
    return other


def taught(seed: int = 0, steps: int | None = None) -> Decoder:
    """Return a decoder that the teacher's sessions have taught, at full context, a half and a quarter."""
    torch.manual_seed(seed)
    decoder, chance, tasks = Decoder(SHAPE), Random(seed), errands(-1 - seed)
    with tempfile.TemporaryDirectory() as folder:
        model, steps = DecoderModel(decoder, Path(folder)), steps or TEACH_STEPS
        for step in range(steps):
            shares = itertools.islice(itertools.cycle(PARTS), TEACH_BATCH)
            rows = [row for share in shares for row in lesson(next(tasks), share, chance)]
            useful = [row for row in rows if any(row.weights)]
            rate = TEACH_RATE * min(1.0, (step + 1) / 30) * (1 - step / steps)
            supervised_step(model, useful, rate)
    return decoder
