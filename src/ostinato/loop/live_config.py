"""The settings of live traffic: who works, how a candidate meets them, and what a trial claims."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ostinato.config import ConfigError
from ostinato.deploy.terms import CLAIMS
from ostinato.loop.placement.base import LOOPBACK
from ostinato.rewards.live.definition import LIVE, LiveDefinition, read_definition

CHAMPION = "champion"
CHALLENGER = "challenger"
ARMS = CHAMPION, CHALLENGER
"""The names of the two arms of a release."""
BUDGETS = ("discoveries", "familywise")
"""The values of `deploy.budget.BudgetRule`."""
ASSIGN = ("user", "session", "block")
PEOPLE: Literal["people"] = "people"
"""The value of `live.developers` for real traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """The live traffic, and one cycle on it: how a candidate is trained, admitted and tested."""

    developers: int | Literal["people"] = 80
    """The number of simulated developers, or `people` for the sessions that people bring by themselves."""
    host: str = LOOPBACK
    """The address of this machine at which the gateway listens while the run is open, and `ostinato serve`
    after it; 0.0.0.0 takes all of them."""
    port: int = 0
    """The port of the gateway then; 0 takes a free one, and 8080 in `ostinato serve`."""
    address: str = ""
    """The address at which people reach the gateway where a proxy of yours stands before it, as
    https://models.example; the gateway serves requests whose Host is that name."""
    sessions: int = 320
    """The sessions of all developers together that a cycle waits for, if its time is not over before."""
    oldest_s: float = 1_209_600.0
    """The age, in seconds since its last turn, up to which a session is learnt from: two weeks."""
    ab_sessions: int = 800
    """The sessions of all developers together after which an A/B test is judged."""
    versions: int = 4
    person_share: float = 0.02
    """The largest part of a batch's weight that one person has, however many sessions they bring; twice an
    equal part where people are few."""
    learning_rate: float = 2e-4
    """Half of practice's: a reward of one session has no group beside it to compare with."""
    looks: int = 500
    """The recorded sessions on which each candidate is looked at beside its gate; 0 for none. Only with the
    local trainer, since this loads the weights."""
    shadow_requests: int = 40
    """The recorded requests that a candidate answers, out of anybody's sight, before it meets a person; 0 for
    none."""
    canary_share: float = 0.1
    """The share of users who are the first to meet a candidate."""
    canary_sessions: int = 80
    """The sessions of all users after which the canary is over, and each step of the ramp; 0 for no step
    before the A/B test."""
    ramp: tuple[float, ...] = ()
    """The wider shares between the canary and the A/B test."""
    hold_out: float = 0.0
    """The share of users whom no trial meets: half of them stay on the first version, half get the newest,
    and the sum of all promotions is judged on them. It takes an engine more."""
    challenger_share: float = 0.5
    gate_margin: float = 0.08
    """The loss of solve rate on held-out tasks with which a candidate must not meet developers."""
    reward: Path | None = None
    """A TOML file with the definition of the live reward; none takes the one that ships."""
    judge: str = ""
    """An OpenAI-compatible address whose model reads people's follow-ups; empty takes the rules and the small
    classifier that ship. Its key is in OSTINATO_JUDGE_KEY."""
    judge_model: str = ""
    """The name of the model at `judge`."""
    claim: str = "better"
    """The claim of the A/B test: `better` with people; better on `bench.suite` and not worse with people
    (`suite`); `cheaper` and not worse, for a candidate that is made to sample less; or a claim of a
    plug-in, whose cost falls."""
    assign: str = "user"
    """What a release deals to an arm: each `user`; or, so that a small team is compared with itself, each
    `session` or each `block` of four hours of a user."""
    budget: str = "discoveries"
    """What all trials together may err: `discoveries` bounds the share of promotions that are wrong,
    `familywise` the chance that any is. Another rule begins a new chain of trials."""
    cheaper_solve_margin: float = 0.03
    """The loss of solve rate on held-out tasks that would be too much for `cheaper` and a plug-in's claim."""
    reward_margin: float = 0.05
    """The loss of reward a session that would be too much for every claim but `better`."""


def allowed_hosts(live: LiveConfig) -> tuple[str, ...]:
    """Return the names under which a proxy of the team passes requests on. Raises ConfigError."""
    url = urlsplit(live.address)
    if live.address and (url.scheme not in ("http", "https") or not url.hostname):
        raise ConfigError(f"live.address is {live.address!r}: write it as https://models.example")
    return (url.hostname,) if url.hostname else ()


def live_definition(live: LiveConfig) -> LiveDefinition:
    """Return the definition of the live reward. Raises ConfigError for one that cannot be used."""
    return LIVE if live.reward is None else read_definition(live.reward)


def check_live(live: LiveConfig) -> None:
    if not live.oldest_s > live_definition(live).mature_s:
        raise ConfigError(
            f"live.oldest_s is {live.oldest_s:g}, and sessions are learnt from at ages of up to "
            f"{live_definition(live).mature_s:g}: make it longer"
        )
    if bool(live.judge) != bool(live.judge_model):
        raise ConfigError("live.judge and live.judge_model go together: an address and the model there")
    for name, words in {"claim": CLAIMS, "budget": BUDGETS, "assign": ASSIGN}.items():
        if getattr(live, name) not in words:
            raise ConfigError(f"live.{name} is {getattr(live, name)!r}: it is one of {', '.join(words)}")
    if not 0 <= live.hold_out < 1:
        raise ConfigError(f"live.hold_out is {live.hold_out}: it is 0 or more, and below 1")
    if not 0 < live.person_share <= 1:
        raise ConfigError(f"live.person_share is {live.person_share}: it lies above 0 and is 1 at most")
    if not 0 < live.challenger_share < 1:
        raise ConfigError(f"live.challenger_share is {live.challenger_share}: it lies between 0 and 1")
    shares = [0.0, live.canary_share, *live.ramp, live.challenger_share]
    if live.canary_sessions and shares != sorted(set(shares)):
        raise ConfigError(
            f"live.canary_share {live.canary_share}, live.ramp {list(live.ramp)} and live.challenger_share "
            f"{live.challenger_share}: a release widens, so each is larger than the one before"
        )
    if min(live.looks, live.shadow_requests, live.canary_sessions) < 0:
        raise ConfigError("live.looks, live.shadow_requests and live.canary_sessions are 0 at least")
    for name in ("sessions", "ab_sessions", "canary_sessions"):
        sessions = getattr(live, name)
        if sessions < 1 and name != "canary_sessions":
            raise ConfigError(f"live.{name} is {sessions}: make it at least 1")
        if live.developers != PEOPLE and (live.developers < 1 or sessions % live.developers):
            raise ConfigError(
                f"live.{name} is {sessions} and live.developers {live.developers}: simulated developers "
                "share the sessions evenly, so make it a multiple of their number"
            )
