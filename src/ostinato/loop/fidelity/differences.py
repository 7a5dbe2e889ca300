"""Every difference between what people are served and what the model is trained and measured in.

::

    run's file ─────────► trained in (practice, lessons) ┐
        └───────────────► measured in (benchmark, gate)  ├─► differences ─► named in [fidelity.wanted], or not
    product, record ────► served to people               ┘

Simulated developers work in the run's own harness, so only people can be served otherwise. What the record
shows of their sessions goes before what the product would give them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from sqlalchemy import func, select

from ostinato.harness.agent import HarnessConfig
from ostinato.harness.profiles.profile import PROFILES, by_hash, profile
from ostinato.harness.workspace.workbench import PEOPLE as LIMITS_OF_PEOPLE
from ostinato.loop.config import RunConfig, taught_profiles
from ostinato.loop.live_config import PEOPLE
from ostinato.sandbox.config import SandboxConfig
from ostinato.search.config import SearchConfig
from ostinato.store import Store
from ostinato.store.sql import schema
from ostinato.types import Decision, Sampling, Source, TurnKind, Verdict

NONE = "none"
INDEX = SearchConfig(cache=Path()).model
"""The embedding of the search service that a run starts."""
FOLLOWS = {"prompt": "profile", "tools": "profile"}
"""What another profile brings with it: it is named with the profile."""
SETTINGS_OF_A_DRAW = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
                      "repetition_penalty")  # fmt: skip
Side = Mapping[str, frozenset[str]]
"""Of each thing that can differ, all values that occur; several where sessions differ among themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same everywhere.

    >>> Difference(name="max_turns", served="50", trained="10", measured="10", why="").named
    False
    """

    name: str
    served: str
    trained: str
    """Empty where the run trains on the sessions of people alone."""
    measured: str
    why: str
    """The reason that the run's file gives; empty where it does not name the difference."""

    @property
    def named(self) -> bool:
        return bool(self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a person brings along: the tools of MCP servers, and a search service.

    >>> Brought(servers=("tickets",)).search
    False
    """

    servers: tuple[str, ...] = ()
    search: bool = False


def differences(
    config: RunConfig, store: Store | None = None, brought: Brought = Brought(), *, now: float | None = None
) -> list[Difference]:
    """Return what differs, in the order of the names.

    The sessions of people count that `store` holds from the last `live.oldest_s` seconds, those that a cycle
    may learn from; `now` is in seconds since the epoch, by default the record's.
    """
    measured, trained, served = _measured(config), _trained(config), _measured(config)
    if config.live.developers == PEOPLE:
        served = _served(config, brought)
        if store is not None:
            since = (store.now() if now is None else now) - config.live.oldest_s
            served = {**served, **_recorded(store, (Source.LIVE,), since)}
            for name, values in _recorded(store, (Source.PRACTICE,)).items():
                trained = {**trained, name: trained.get(name, values) | values}
    sides = [_with_profile(side) for side in (served, trained, measured)]
    found, wanted = [], config.fidelity.wanted
    for name in sorted({*sides[0], *sides[1], *sides[2]}):
        here, there, score = (side.get(name) for side in sides)
        if any(other is not None and other != here for other in (there, score)):
            words = {"served": _words(here), "trained": _words(there), "measured": _words(score)}
            found.append(Difference(name=name, why=wanted.get(FOLLOWS.get(name, name), ""), **words))
    return found


def unnamed(found: Sequence[Difference]) -> list[Difference]:
    """Return the differences that the run's file does not name."""
    return [each for each in found if not each.named]


def held_for(verdict: Verdict, found: Sequence[Difference]) -> Verdict:
    """Return the gate's verdict with all differences in its evidence, and HOLD in place of an admission
    where one of them is not named: nothing was shown of what people would be served."""
    evidence = {**verdict.evidence, "fidelity": [asdict(each) for each in found]}
    missing = unnamed(found)
    if not missing or verdict.decision is not Decision.ADMIT:
        return replace(verdict, evidence=evidence)
    reason = f"{said(missing)}; otherwise it would be admitted: {verdict.reason}"
    return replace(verdict, decision=Decision.HOLD, reason=reason, evidence=evidence)


def said(missing: Sequence[Difference]) -> str:
    """Return the sentence on unnamed differences, with what to do about them."""
    names = ", ".join(each.name for each in missing)
    return (
        f"people are served otherwise than the model is trained or measured, in {names}: make them alike, or "
        "give the reason of each in [fidelity.wanted] of the run's file (`ostinato fidelity`)"
    )


def _of_harness(config: HarnessConfig) -> dict[str, frozenset[str]]:
    known = {each.name: str(getattr(config, each.name)) for each in fields(config)}
    del known["temperature"]
    known["sampling"] = _drawn(Sampling(temperature=config.temperature))
    return {name: frozenset({value}) for name, value in known.items()}


def _measured(config: RunConfig) -> Side:
    shows = any(offer.tool == "semantic_search" for offer in profile(config.harness.profile).offers)
    around = {
        "search": f"index {INDEX!r} beside the gateway" if shows else NONE,
        "mcp": NONE,
        "sandbox": _sandbox(config.sandbox),
        "permissions": "everything is allowed",
        "user": "answers by the task's card",
    }
    return _of_harness(config.harness) | {name: frozenset({value}) for name, value in around.items()}


def _trained(config: RunConfig) -> Side:
    """Return what lessons and practice have; a harness of others brings its own, which nobody here knows."""
    stages, outside = config.schedule.stages, config.practice.outside
    profiles = set(taught_profiles(config)) if "teach" in stages else set[str]()
    if "practice" not in stages:
        return {"profile": frozenset(profiles)} if profiles else {}
    if not outside.harness:
        return {**_measured(config), "profile": frozenset({*profiles, config.harness.profile})}
    own = {"profile": frozenset({*profiles, outside.name}), "max_turns": frozenset({str(outside.max_turns)})}
    return {**own, "sandbox": _measured(config)["sandbox"]}


def _served(config: RunConfig, brought: Brought) -> Side:
    """Return what `ostinato code` gives a person: the profile that the model was trained under, the context
    that its engine reads, and otherwise limits of its own."""
    limits = replace(LIMITS_OF_PEOPLE, profile=config.harness.profile, max_context=config.engine.context)
    search = "the service of OSTINATO_SEARCH_URL" if brought.search else "no service"
    around = {
        "search": NONE if _measured(config)["search"] == {NONE} else search,
        "mcp": ", ".join(sorted(brought.servers)) or NONE,
        "sandbox": "in place, with the person's programs and network",
        "permissions": "rules, and the person is asked",
        "user": "a person",
    }
    return _of_harness(limits) | {name: frozenset({value}) for name, value in around.items()}


def _sandbox(config: SandboxConfig) -> str:
    parts = [config.backend, config.image, config.runtime, f"egress {config.egress}"]
    return "a copy in " + ", ".join(part for part in parts if part)


def _with_profile(side: Side) -> Side:
    """Return the side with the prompts and tools of its profiles, as far as this version knows them."""
    if "profile" not in side:
        return side
    known = {name: PROFILES.get(name) for name in side["profile"]}
    prompts = {f"{len(each.system)} characters of {name}" if each else name for name, each in known.items()}
    tools = {" ".join(offer.name for offer in each.offers) if each else name for name, each in known.items()}
    return {**side, "prompt": frozenset(prompts), "tools": frozenset(tools)}


def _words(values: Collection[str] | None) -> str:
    return "" if values is None else " | ".join(sorted(values))


def _recorded(store: Store, sources: Collection[Source], since: float = 0.0) -> Side:
    """Return the harness and the sampling of the sessions from `since` on; {} where there is none."""
    session, turn = schema.sessions.c, schema.turns.c
    drawn = [getattr(turn, name) for name in SETTINGS_OF_A_DRAW]
    query = (
        select(session.harness, *drawn, func.count(session.id.distinct()))
        .join_from(schema.sessions, schema.turns, turn.session_id == session.id)
        .where(session.source.in_([each.value for each in sources]), session.started_at >= since)
        .where(session.id.not_in(select(schema.purges.c.session_id)), turn.kind == TurnKind.MAIN.value)
        .group_by(session.harness, *drawn)
    )
    harnesses, draws = Counter[str](), Counter[str]()
    with store.database.read() as connection:
        for harness, *settings, count in connection.execute(query):
            harnesses[_named(harness)] += count
            draws[_drawn(Sampling(**dict(zip(SETTINGS_OF_A_DRAW, settings, strict=True))))] += count
    return {"profile": frozenset(harnesses), "sampling": frozenset(draws)} if harnesses else {}


def _named(harness: str) -> str:
    """Return the profile of that hash; another one is of other tools or words, of MCP servers, of another
    release or of another client."""
    if "/" in harness:  # practice in a harness of others
        return harness
    found = by_hash(harness)
    return found.name if found else f"unknown {harness[:12]}" if harness else "of a client that names none"


def _drawn(sampling: Sampling) -> str:
    bent = [f"{name} {getattr(sampling, name):g}" for name in sampling.bent]
    return ", ".join([f"temperature {sampling.temperature:g}", *bent])
