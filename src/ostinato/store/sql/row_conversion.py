"""The conversion of the dataclasses in `types` to database rows and back.

Token columns are little-endian blobs: int32 ids, float32 logprobs, and versions as int32 runs (version,
length, version, length, …), because a turn nearly always has one version. Temperatures are runs of (float64,
int32) for the same reason. The routes of a sample are an int32 width and the compressed bytes of its columns,
first all low bytes, then all high ones, which are zero up to 256 experts.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, RowMapping

from ostinato.store.sql import schema
from ostinato.store.sql.chunks import last_rows
from ostinato.types import (
    Arm,
    Checkpoint,
    Completion,
    Decision,
    Distribution,
    Ending,
    Event,
    FinishReason,
    Group,
    PartState,
    Report,
    Reward,
    RewardPart,
    Routes,
    Sample,
    Sampling,
    Score,
    Session,
    Signal,
    SignalKind,
    Source,
    Structure,
    StructureKind,
    Turn,
    TurnKind,
    Verdict,
    from_json,
    to_json,
)

Row = dict[str, Any]
_FLOAT_RUN = struct.Struct("<di")
SAMPLING_COLUMNS = tuple(each.name for each in fields(Sampling) if each.name != "structure")
SESSION_COLUMNS = tuple(each.name for each in fields(Session))
EVENT_COLUMNS = ("id", "name", "user", "organisation", "session_id", "turn", "observed_at")


def pack_ints(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def unpack_ints(blob: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(blob) // 4}i", blob)


def pack_floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def unpack_floats(blob: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(blob) // 4}f", blob)


def pack_runs(values: Sequence[int]) -> bytes:
    return pack_ints([n for value, run in groupby(values) for n in (value, len(tuple(run)))])


def unpack_runs(blob: bytes) -> tuple[int, ...]:
    pairs = unpack_ints(blob)
    return tuple(v for value, length in zip(pairs[::2], pairs[1::2], strict=True) for v in (value,) * length)


def pack_float_runs(values: Sequence[float]) -> bytes:
    return b"".join(_FLOAT_RUN.pack(value, len(tuple(run))) for value, run in groupby(values))


def unpack_float_runs(blob: bytes) -> tuple[float, ...]:
    return tuple(v for value, length in _FLOAT_RUN.iter_unpack(blob) for v in (value,) * length)


def pack_routes(routes: Routes | None) -> bytes | None:
    if routes is None:
        return None
    planes = routes.data[::2], routes.data[1::2]
    columns = b"".join(plane[i :: routes.width] for plane in planes for i in range(routes.width))
    return pack_ints((routes.width,)) + zlib.compress(columns)


def unpack_routes(blob: bytes | None) -> Routes | None:
    if blob is None:
        return None
    (width,), columns = unpack_ints(blob[:4]), zlib.decompress(blob[4:])
    tokens = len(columns) // (2 * width)
    data = bytearray(len(columns))
    for plane in range(2):
        for i in range(width):
            start = (plane * width + i) * tokens
            data[2 * i + plane :: 2 * width] = columns[start : start + tokens]
    return Routes(data=bytes(data), width=width)


def session_row(session: Session) -> Row:
    row = {name: getattr(session, name) for name in SESSION_COLUMNS}
    return row | {"source": session.source.value, "ending": session.ending and session.ending.value}


def session_of(row: RowMapping) -> Session:
    ending = row["ending"]
    return Session(**{**row, "source": Source(row["source"]), "ending": ending and Ending(ending)})


def turn_row(turn: Turn) -> Row:
    """Return the row of a turn with its whole prompt, as which `increments` may not store it."""
    completion = turn.completion
    return {
        "id": turn.id,
        "session_id": turn.session_id,
        "number": turn.index,
        "segment": turn.segment,
        "arm": turn.arm,
        "finish": completion.finish.value,
        "started_at": turn.started_at,
        "latency_s": turn.latency_s,
        "broken": turn.broken,
        "kind": turn.kind.value,
        "untrainable": turn.untrainable,
        **{name: getattr(turn.sampling, name) for name in SAMPLING_COLUMNS},
        "structure": _structure_text(turn.sampling.structure),
        "distribution": completion.distribution.value,
        "prompt_ids": pack_ints(turn.prompt_ids),
        "ids": pack_ints(completion.ids),
        "logprobs": pack_floats(completion.logprobs),
        "versions": pack_runs(completion.versions),
        "routes": completion.routes,
    }


def turn_of(row: Mapping[str, Any]) -> Turn:
    return Turn(
        session_id=row["session_id"],
        index=row["number"],
        segment=row["segment"],
        arm=row["arm"],
        prompt_ids=unpack_ints(row["prompt_ids"]),
        completion=Completion(
            ids=unpack_ints(row["ids"]),
            logprobs=unpack_floats(row["logprobs"]),
            versions=unpack_runs(row["versions"]),
            finish=FinishReason(row["finish"]),
            routes=row["routes"],
            distribution=Distribution(row["distribution"]),
        ),
        started_at=row["started_at"],
        latency_s=row["latency_s"],
        broken=row["broken"],
        kind=TurnKind(row["kind"]),
        untrainable=row["untrainable"],
        sampling=Sampling(
            **{name: row[name] for name in SAMPLING_COLUMNS}, structure=_structure_of(row["structure"])
        ),
    )


def _structure_text(structure: Structure | None) -> str | None:
    return None if structure is None else f"{structure.kind.value}:{structure.text}"


def _structure_of(stored: str | None) -> Structure | None:
    if stored is None:
        return None
    kind, _, text = stored.partition(":")
    return Structure(kind=StructureKind(kind), text=text)


def signal_row(signal: Signal) -> Row:
    is_text = isinstance(signal.value, str)
    return {
        "id": signal.id,
        "session_id": signal.session_id,
        "kind": signal.kind.value,
        "number": None if is_text else float(signal.value),
        "text": str(signal.value) if is_text else None,
        "observed_at": signal.observed_at,
        "turn": signal.turn,
        "edit": signal.edit,
        "received_at": signal.received_at,
    }


def signal_of(row: RowMapping) -> Signal:
    return Signal(
        id=row["id"],
        session_id=row["session_id"],
        kind=SIGNAL_KINDS[row["kind"]],
        value=row["number"] if row["text"] is None else row["text"],
        observed_at=row["observed_at"],
        turn=row["turn"],
        edit=row["edit"],
        received_at=row["received_at"],
    )


SIGNAL_KINDS = {kind.value: kind for kind in SignalKind}


def event_row(event: Event) -> Row:
    attributes = json.dumps(dict(event.attributes), ensure_ascii=False)
    return {**{name: getattr(event, name) for name in EVENT_COLUMNS}, "attributes": attributes}


def event_of(row: RowMapping) -> Event:
    return Event(**{**row, "attributes": json.loads(row["attributes"])})


def reward_row(reward: Reward) -> Row:
    parts = json.dumps([{name: getattr(part, name) for name in REWARD_PARTS} for part in reward.parts])
    return {
        "session_id": reward.session_id,
        "definition": reward.definition,
        "total": reward.total,
        "parts": parts,
        "as_of": reward.as_of,
    }


def new_reward_rows(connection: Connection, rewards: Iterable[Reward]) -> Iterator[Row]:
    """Yield the rows of the rewards that say something else than the one before of their session."""
    rows = [reward_row(reward) for reward in rewards]
    said = {
        id: (row.definition, row.parts, row.as_of)
        for id, row in last_rows(connection, schema.rewards, [row["session_id"] for row in rows]).items()
    }
    for row in rows:
        says = row["definition"], row["parts"], row["as_of"]
        if said.get(row["session_id"]) != says:
            said[row["session_id"]] = says
            yield row


REWARD_PARTS = tuple(each.name for each in fields(RewardPart))


def reward_of(row: RowMapping) -> Reward:
    parts = tuple(map(_part, json.loads(row["parts"])))
    return Reward(session_id=row["session_id"], definition=row["definition"], parts=parts, as_of=row["as_of"])


def _part(fields: dict[str, Any]) -> RewardPart:
    return RewardPart(
        **{**fields, "evidence": tuple(fields["evidence"]), "state": PartState(fields["state"])}
    )


def version_row(row: Checkpoint) -> Row:
    return {**asdict(row), "batch": json.dumps(row.batch)}


def version_of(row: RowMapping) -> Checkpoint:
    return Checkpoint(**{**row, "batch": tuple(json.loads(row["batch"]))})


def report_row(report: Report) -> Row:
    scores = json.dumps({split: to_json(score) for split, score in report.scores.items()})
    return {
        "id": report.id,
        "version": report.version,
        "scores": scores,
        "rates": json.dumps(dict(report.rates)),
        "harness": report.harness,
    }


def report_of(row: RowMapping) -> Report:
    scores = {split: from_json(Score, score) for split, score in json.loads(row["scores"]).items()}
    same = {name: row[name] for name in ("id", "version", "harness")}
    return Report(**same, scores=scores, rates=json.loads(row["rates"]))


def verdict_row(verdict: Verdict) -> Row:
    return {
        "id": verdict.id,
        "version": verdict.version,
        "decision": verdict.decision.value,
        "reason": verdict.reason,
        "evidence": json.dumps(dict(verdict.evidence)),
    }


def verdict_of(row: RowMapping) -> Verdict:
    same = {name: row[name] for name in ("id", "version", "reason")}
    return Verdict(**same, decision=Decision(row["decision"]), evidence=json.loads(row["evidence"]))


def arm_rows(arms: Iterable[Arm]) -> list[Row]:
    return [_arm_row(arm, position) for position, arm in enumerate(arms)]


def _arm_row(arm: Arm, position: int) -> Row:
    """Return the row of an arm. The engines' addresses, which hold no space, share the column `engine`."""
    fields = asdict(arm)
    return {"engine": " ".join(fields.pop("engines")), **fields, "position": position}


def arm_of(row: RowMapping) -> Arm:
    fields = {name: row[name] for name in ("name", "version", "share", "experiment")}
    return Arm(engines=tuple(row["engine"].split()), **fields)


def group_row(group: Group) -> Row:
    return {
        "id": group.id,
        "prompt": group.prompt,
        "rewards": struct.pack(f"<{len(group.rewards)}d", *group.rewards),
        "kind": group.kind,
        "oldest_version": group.oldest_version,
        "withdrawn": False,
        "trees": json.dumps(group.trees),
        "person": group.person,
        "weight": group.weight,
    }


def group_of(row: RowMapping, samples: Sequence[Sample]) -> Group:
    rewards = struct.unpack(f"<{len(row['rewards']) // 8}d", row["rewards"])
    return Group(
        id=row["id"],
        prompt=row["prompt"],
        samples=tuple(samples),
        rewards=rewards,
        kind=row["kind"],
        trees=tuple(map(tuple, json.loads(row["trees"]))),
        person=row["person"],
        weight=row["weight"],
    )


def sample_row(group_id: str, position: int, sample: Sample) -> Row:
    return {
        "group_id": group_id,
        "position": position,
        "session_id": sample.session_id,
        "turns": pack_ints(sample.turns),
        "ids": pack_ints(sample.ids),
        "mask": bytes(sample.mask),
        "logprobs": pack_floats(sample.logprobs),
        "versions": pack_runs(sample.versions),
        "temperatures": pack_float_runs(sample.temperatures),
        "advantage": sample.advantage,
        "routes": pack_routes(sample.routes),
    }


def sample_of(row: Mapping[Any, Any]) -> Sample:
    return Sample(
        session_id=row["session_id"],
        turns=unpack_ints(row["turns"]),
        ids=unpack_ints(row["ids"]),
        mask=tuple(map(bool, row["mask"])),
        logprobs=unpack_floats(row["logprobs"]),
        versions=unpack_runs(row["versions"]),
        temperatures=unpack_float_runs(row["temperatures"]),
        advantage=row["advantage"],
        routes=unpack_routes(row["routes"]),
    )
