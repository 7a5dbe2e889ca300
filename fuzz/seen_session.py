"""One told session: an agent looks, edits, tests, forks, and is asked for a title; and its edits' fate."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ostinato.model.families import HermesRenderer
from ostinato.model.tokenizer import Tokenizer
from ostinato.types import Completion, Event, FinishReason, Session, Source, Turn, TurnKind

RULES = (
    "You are a coding agent in the user's git repository. Make the smallest change that does what was asked."
)
TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": {"type": "object"}}}
    for name, text in (
        ("read", "Read a file."),
        ("edit", "Replace text in a file."),
        ("bash", "Run a command."),
    )
]
WRONG = "def area(width, height):\n    return width + height\n"
RIGHT = "def area(width, height):\n    return width * height\n"
FAILED = "F.\n==== short summary ====\nFAILED test_shapes.py::test_area - assert 7 == 12\n1 failed, 1 passed"


def teach_tokenizer(directory: Path) -> HermesRenderer:
    """Write a small tokenizer into a folder that then serves as a checkpoint; return its renderer."""
    corpus = [
        RULES,
        WRONG,
        RIGHT,
        FAILED,
        json.dumps(TOOLS),
        "the area of a rectangle is wrong, please fix it",
    ]
    Tokenizer.train(corpus * 3, 420, ["<tool_call>\n", "<|im_end|>\n<|im_start|>assistant\n"]).save(directory)
    return HermesRenderer(Tokenizer.load(directory))


class Speaker:
    """Writes the turns of one session, each as an extension of the turn that it continues."""

    def __init__(self, renderer: HermesRenderer, session: Session, seed: int) -> None:
        self.turns: list[Turn] = []
        self._renderer, self._session = renderer, session
        self._random = random.Random(seed)

    def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        answer: Mapping[str, Any],
        *,
        after: int | None,
        segment: int = 0,
        versions: tuple[int, int] = (7, 7),
        kind: TurnKind = TurnKind.MAIN,
    ) -> None:
        """Append a turn; its tokens are of the first version, and from the middle on of the second."""
        if after is None:
            prompt = self._renderer.render(messages, TOOLS)
        else:
            base = self.turns[after]
            prompt = [*base.prompt_ids, *base.completion.ids, *self._renderer.extend(messages)]
        ids = tuple(self._renderer.say(answer))
        half = len(ids) // 2
        completion = Completion(
            ids=ids,
            logprobs=tuple(self._logprob() for _ in ids),
            versions=(versions[0],) * half + (versions[1],) * (len(ids) - half),
            finish=FinishReason.STOP,
        )
        number = len(self.turns)
        self.turns.append(
            Turn(
                session_id=self._session.id,
                index=number,
                segment=segment,
                arm=self._session.arm,
                prompt_ids=tuple(prompt),
                completion=completion,
                kind=kind,
                started_at=self._session.started_at + 9.0 * number,
                latency_s=self._random.uniform(0.3, 4.0),
            )
        )

    def _logprob(self) -> float:
        return -min(
            12.0,
            self._random.expovariate(1 / 0.05)
            if self._random.random() < 0.8
            else self._random.expovariate(0.7),
        )


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return an answer that is one call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


def result(text: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": "call", "content": text}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def live(
    id: str, name: str, organisation: str, *, consent: bool, at: float, arm: str = "champion"
) -> Session:
    return Session(
        id=id,
        source=Source.LIVE,
        user=name,
        organisation=organisation,
        arm=arm,
        task_id=None,
        harness="9f31c0de",
        started_at=at,
        consent=consent,
    )


def tell(
    renderer: HermesRenderer, session: Session, *, words: str = "the area of a rectangle is wrong"
) -> list[Turn]:
    """Return the turns of a session that looks, edits, tests, forks, and is asked for a title beside."""
    speaker = Speaker(renderer, session, seed=5)
    edit = call(
        "edit",
        path="shapes.py",
        old_string="    return width + height",
        new_string="    return width * height",
    )
    start = [{"role": "system", "content": RULES}, user(words)]
    speaker.ask(start, call("bash", command="pytest -q"), after=None)
    speaker.ask(result(FAILED), call("read", path="shapes.py"), after=0)
    speaker.ask(result(WRONG), edit, after=1, versions=(7, 8))
    speaker.ask(result("ok"), call("bash", command="pytest -q"), after=2, versions=(8, 8))
    speaker.ask(
        result("2 passed"),
        {"role": "assistant", "content": "The area was a sum. It is a product now, and the tests pass."},
        after=3,
        versions=(8, 8),
    )
    guess = call("edit", path="shapes.py", old_string=WRONG, new_string=RIGHT)
    speaker.ask(result(WRONG), guess, after=1, segment=1, versions=(8, 8))
    speaker.ask(
        [user("Give this conversation a title.")],
        {"role": "assistant", "content": "Fix the area"},
        after=None,
        segment=2,
        kind=TurnKind.SIDE,
        versions=(8, 8),
    )
    return speaker.turns


def edit_events(
    session: Session, id: str, turn: int, *, at: float, rates: Sequence[float], path: str
) -> list[Event]:
    """Return what the hooks report of one edit: its proposal, its commit, and the share that survived."""
    windows = (0, 30, 300, 900, 3_600, 86_400, 259_200, 604_800)
    hunk = {"line": 2, "before": "    return width + height\n", "after": "    return width * height\n"}
    proposed = {
        "edit_id": id,
        "path_hash": "6b1f09",
        "language_id": "python",
        "lines_added": 1,
        "lines_removed": 1,
        "tool_use_id": f"call_{turn}_0",
        "path": path,
        "hunks": [hunk],
    }
    facts: list[tuple[str, float, dict[str, Any]]] = [("edit.proposed", 0.0, proposed)]
    for seconds, rate in zip(windows, rates, strict=False):
        verdict = "kept" if rate == 1 else "edited" if rate > 0.1 else "reverted"
        measured = {"survival_rate_four_gram": rate, "survival_rate_no_revert": rate, "verdict": verdict}
        facts.append(("edit.survival", float(seconds), {"edit_id": id, "window": str(seconds), **measured}))
    facts.append(
        (
            "edit.commit",
            1_200.0,
            {"edit_id": id, "commit": "4be1f2c09a77", "survival_rate_four_gram": rates[-1]},
        )
    )
    return [
        Event(
            id=f"{id}/{name}/{delay:.0f}",
            name=name,
            user=session.user,
            organisation=session.organisation,
            observed_at=at + delay,
            session_id=session.id,
            turn=turn,
            attributes=attributes,
        )
        for name, delay, attributes in facts
    ]
