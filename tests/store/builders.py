"""Small nouns for the tests of the record, and hypothesis strategies for arbitrary ones."""

import subprocess
import sys
from pathlib import Path

from hypothesis import strategies as st

from ostinato.types import (
    Checkpoint,
    Completion,
    Distribution,
    Ending,
    FinishReason,
    Group,
    Routes,
    Sample,
    Sampling,
    Session,
    Signal,
    SignalKind,
    Source,
    Structure,
    StructureKind,
    Turn,
)

ROOT = Path(__file__).parents[2]
INTS = st.integers(-(2**31), 2**31 - 1)
FLOATS32 = st.floats(allow_nan=False, width=32)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def columns(names: dict[str, st.SearchStrategy]) -> st.SearchStrategy[dict[str, tuple]]:
    """Tuples of equal length, one for each name."""
    rows = st.lists(st.tuples(*names.values()), max_size=8)
    return rows.map(
        lambda found: {name: tuple(row[i] for row in found) for i, name in enumerate(names)},
    )


COMPLETIONS = st.builds(
    lambda tokens, **rest: Completion(**tokens, **rest),
    columns({"ids": INTS, "logprobs": FLOATS32, "versions": INTS}),
    finish=st.sampled_from(FinishReason),
    routes=st.none() | st.lists(st.binary(min_size=2, max_size=2), max_size=10).map(b"".join),
    distribution=st.sampled_from(Distribution),
)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0, 2),
    top_p=st.floats(0, 1, exclude_min=True, allow_subnormal=False),
    top_k=st.integers(0, 2**31 - 1),
    min_p=st.floats(0, 1),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0, 1e3, exclude_min=True, allow_subnormal=False),
    seed=st.integers(0, 2**63 - 1),
    structure=st.none()
    | st.just(Structure(kind=StructureKind.JSON_OBJECT))
    | st.builds(Structure, kind=st.just(StructureKind.REGEX), text=TEXT.filter(bool)),
)
TURNS = st.builds(
    Turn,
    session_id=st.just("s1"),
    index=st.integers(0, 2**40),
    segment=st.integers(0, 9),
    arm=TEXT,
    prompt_ids=st.lists(INTS, max_size=8).map(tuple),
    completion=COMPLETIONS,
    started_at=FINITE,
    latency_s=FINITE,
    broken=st.none() | TEXT,
    sampling=SAMPLINGS,
)
SIGNALS = st.builds(
    Signal,
    session_id=st.just("s1"),
    kind=st.sampled_from([kind for kind in SignalKind if kind is not SignalKind.ENDING]),
    value=TEXT | FINITE,
    observed_at=FINITE,
    turn=st.none() | st.integers(0, 99),
    id=st.uuids().map(str),
)
SESSIONS = st.builds(
    Session,
    id=TEXT,
    source=st.sampled_from(Source),
    user=TEXT,
    arm=TEXT,
    task_id=st.none() | TEXT,
    harness=TEXT,
    started_at=st.floats(0, 1e12),
    ending=st.none() | st.sampled_from(Ending),
)


def _sample(tokens: dict[str, tuple], width: int, routed: int, **rest: object) -> Sample:
    """A sample of which at most the last token has no routes."""
    size = 2 * width * min(routed, len(tokens["ids"]) - 1)
    data = bytes((7 * i * i) % 256 for i in range(size))
    return Sample(**tokens, **rest, routes=Routes(data=data, width=width) if size else None)


SAMPLES = st.builds(
    _sample,
    columns(
        {
            "ids": INTS,
            "mask": st.booleans(),
            "logprobs": FLOATS32,
            "versions": INTS,
            "temperatures": st.floats(0, 2),
        }
    ).filter(lambda row: any(row["mask"])),
    width=st.integers(1, 5),
    routed=st.integers(0, 9),
    session_id=TEXT,
    turns=st.lists(st.integers(0, 99), max_size=4).map(tuple),
    advantage=FINITE,
)


def session(id: str = "s1", *, arm: str = "main", started_at: float = 1.0, **rest: object) -> Session:
    fields = {"source": Source.LIVE, "user": "ada", "task_id": None, "harness": "9f", **rest}
    return Session(id=id, arm=arm, started_at=started_at, **fields)


def turn(index: int, session_id: str = "s1") -> Turn:
    return Turn(
        session_id=session_id,
        index=index,
        segment=0,
        arm="main",
        prompt_ids=(1, 2, 3),
        completion=Completion(
            ids=(index, 2), logprobs=(-0.5, -0.25), versions=(3, 3), finish=FinishReason.STOP
        ),
        started_at=2.0,
        latency_s=0.5,
    )


def group(id: str, *, version: int = 3, turns: tuple[int, ...] = (0,), session_id: str = "s1") -> Group:
    sample = Sample(
        session_id=session_id,
        turns=turns,
        ids=(1, 2, 3),
        mask=(False, True, True),
        logprobs=(0.0, -0.5, -0.25),
        versions=(0, version, version + 1),
        temperatures=(1.0, 1.0, 1.0),
        advantage=0.5,
    )
    return Group(id=id, prompt=f"prompt of {id}", samples=(sample,), rewards=(1.0, -0.2))


def version(number: int, *batch: str, parent: int | None = None, digest: str | None = None) -> Checkpoint:
    """A published version that was trained on the groups of `batch`."""
    return Checkpoint(
        version=number,
        parent=parent,
        digest=digest or f"digest of {number}",
        kind="delta",
        bytes=1,
        created_at=0.0,
        batch=batch,
    )


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process running `code`, its output piped."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT)
