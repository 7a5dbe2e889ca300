"""The promotion after its trial: provisional until its outcomes are known, then confirmed or demoted.

The outcomes of the trial's own sessions are compared between its arms, as each becomes mature. Two hypotheses
decide, each at every look together: that no outcome is worse, which must be refuted to demote early; and that
an outcome with a margin is worse by that margin, which must be refuted to confirm. A promotion of which
neither is refuted when all outcomes are known is demoted too: the burden of proof is the challenger's.
Outcomes that never came, on either arm, prove nothing, and leave it where it is.

A verdict that settles a promotion is a row under one id, so the cycle settles each once; so is the word of a
person, which stands above it, and the first of two words holds.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ostinato.deploy.abtest import compare
from ostinato.deploy.effects import MIN_USERS
from ostinato.deploy.statistics import Interval, interval
from ostinato.deploy.terms import Trial, TrialSession
from ostinato.store import Store
from ostinato.store.cycle_log import CycleAction, cycle_log, log_cycle, said_now
from ostinato.store.releases import ReleaseStage, last_release
from ostinato.types import Decision, Verdict
from ostinato.web.plain import line_of


class LateError(ValueError):
    """No promotion of this version can be settled."""


HARM = 0.05
"""The chance that a promotion which made nothing worse is demoted as shown to be worse, over all outcomes."""
DOUBT = 0.05
"""The chance that a promotion which is worse by the margin of an outcome is confirmed."""
WORD = "/word"
"""The end of the id of a person's verdict."""
Told = Sequence[tuple[TrialSession, float, bool]]
"""The mature sessions of one outcome, each with its value, and whether any fact came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """One promotion, and what became of it.

    >>> won = Verdict(version=7, decision=Decision.PROMOTE, reason="better", id="trial-of-7")
    >>> Promotion(verdict=won, replaced=3, ended_at=0.0, terms={"since": 0.0}).standing
    'provisional'
    """

    verdict: Verdict
    """The trial's, or a person's; its id is that of the trial."""
    replaced: int | None
    """The version that people met beside it; None where nothing tells."""
    ended_at: float
    """The end of its release, in seconds since the epoch."""
    terms: Mapping[str, Any] | None
    """The logged terms of the split, None where there was none."""
    late: Verdict | None = None
    """The verdict that settled it; None while it is provisional."""
    put_back: str = ""
    """The cycle in which what it replaced was served again; empty while it is not."""

    @property
    def version(self) -> int:
        return self.verdict.version

    @property
    def trial(self) -> Trial:
        """The terms of its split by which the outcomes are compared."""
        terms: Mapping[str, Any] = self.terms or {}
        names = {each.name for each in fields(Trial)} - {"claim", "margin", "guardrails"}
        return Trial(**{name: terms[name] for name in names & terms.keys()})

    @property
    def demoted(self) -> bool:
        return self.late is not None and self.late.decision is Decision.DEMOTE

    @property
    def standing(self) -> str:
        """The word for what became of it."""
        if self.late is not None:
            return WORDS[self.late.decision] + (", put back" if self.put_back else "")
        return "provisional" if self.terms is not None else "by hand, without a trial"

    @property
    def words(self) -> str:
        """The fate of the promotion and its reason, in one line of plain text."""
        why = f": {self.late.reason}" if self.late is not None else ""
        return line_of(f"version {self.version}: {self.standing}{why}", 400)


WORDS = {Decision.CONFIRM: "confirmed", Decision.DEMOTE: "demoted", Decision.INCONCLUSIVE: "unconfirmed"}
"""The words for a settled promotion."""


def promotions(store: Store) -> list[Promotion]:
    """Return every promotion of a store, oldest first."""
    entries = cycle_log(store)
    began = [entry.detail for entry in entries if entry.action is CycleAction.TRIAL_BEGAN]
    back = {entry.detail: entry.cycle for entry in entries if entry.action is CycleAction.PUT_BACK}
    terms = {each["experiment"]: each for each in map(json.loads, began)}
    verdicts = store.verdicts()
    found = []
    for verdict in verdicts:
        if not verdict.decision.promotes or verdict.evidence.get("release") != verdict.id:
            continue
        over, about = last_release(store, verdict.id), terms.get(verdict.id)
        settled = [each for each in verdicts if each.id.startswith(f"{verdict.id}/late")]
        settled.sort(key=lambda each: each.id.endswith(WORD))
        found.append(
            Promotion(
                verdict=verdict,
                replaced=verdict.evidence.get("replaced", about and about["versions"][about["champion"]]),
                ended_at=over.at if over is not None and over.stage is ReleaseStage.OVER else math.inf,
                terms=about,
                late=settled[-1] if settled else None,
                put_back=back.get(verdict.id, ""),
            )
        )
    return found


def judge_outcomes(
    version: int, trial: Trial, margins: Mapping[str, float | None], told: Mapping[str, Told], sessions: int
) -> Verdict:
    """Return CONFIRM, DEMOTE, INCONCLUSIVE when no outcome came, or HOLD while it is provisional.

    `margins` has the loss of each outcome that is too much, None for one that confirms nothing. `sessions`
    are those of the trial, mature or not; nothing more comes when all are mature in every outcome.
    """
    over = all(len(told[name]) >= sessions for name in margins)
    changes, shown = {}, {}
    for name, margin in margins.items():
        counts = {arm: _people(told[name], arm) for arm in (trial.champion, trial.challenger)}
        shown[name] = {"mature": len(told[name]), "known": {arm: n for arm, (_, n) in counts.items()}}
        everybody, known = zip(*counts.values(), strict=True)
        if min(everybody) < MIN_USERS or max(known) < MIN_USERS:
            continue
        change = compare(trial, [(session, value) for session, value, _ in told[name]], {})
        fraction = min(1.0, len(told[name]) / max(1, sessions))
        bounds = {
            "harming": interval(change, HARM / len(margins), fraction),
            "confirming": interval(change, DOUBT, fraction),
        }
        changes[name] = bounds
        shown[name] |= {"fraction": fraction, "margin": margin}
        shown[name] |= {key: asdict(each) for key, each in bounds.items()}
    decision, reason = _decide(margins, changes, over=over)
    evidence = {"release": trial.experiment, "outcomes": shown, "sessions": sessions}
    return Verdict(
        version=version,
        decision=decision,
        reason=reason,
        evidence=evidence | {"harm": HARM, "doubt": DOUBT},
        id=f"{trial.experiment}/late",
    )


def _people(told: Told, arm: str) -> tuple[int, int]:
    """Return the users of an arm, and those of them of whom any fact came."""
    mine = [(session.user, known) for session, _, known in told if session.arm == arm]
    return len({user for user, _ in mine}), len({user for user, known in mine if known})


def _decide(
    margins: Mapping[str, float | None], changes: Mapping[str, Mapping[str, Interval]], *, over: bool
) -> tuple[Decision, str]:
    if worse := [f"{name} {each['harming']}" for name, each in changes.items() if each["harming"].high < 0]:
        return Decision.DEMOTE, f"demoted by late facts: {', '.join(worse)} a session"
    deciding = {name: margin for name, margin in margins.items() if margin is not None and name in changes}
    said = ", ".join(f"{name} {changes[name]['confirming']}" for name in deciding)
    if deciding and all(changes[name]["confirming"].low > -margin for name, margin in deciding.items()):
        return Decision.CONFIRM, f"confirmed by late facts: {said} a session"
    if not over:
        so_far = f"; so far {said}" if said else ""
        return Decision.HOLD, f"provisional: its outcomes are not mature{so_far}"
    if deciding:
        limits = ", ".join(f"{name} by {margin:g}" for name, margin in deciding.items())
        return Decision.DEMOTE, f"demoted: not shown to lose less than the margin, {limits}: {said} a session"
    return Decision.INCONCLUSIVE, (
        "unconfirmed: the outcome window is over and no outcome that could confirm it came on either arm, so "
        "it stays as its trial left it; connect what measures edits, or name other [outcomes]"
    )


def settle_all(
    store: Store, chain: Sequence[Promotion], judge: Callable[[Promotion], Verdict]
) -> list[Verdict]:
    """Judge the provisional promotions of `chain`, oldest first, and return the verdicts that settled one.

    Those after a demoted one were trained on it and go with it, also one that was promoted at that moment.
    They are recorded before it: a kill in between leaves it to be judged again.
    """
    settled: list[Verdict] = []
    for number, one in enumerate(chain):
        if one.late is not None and one.demoted:
            settled += _with_it(store, [each for each in chain[number + 1 :] if each.late is None], one.late)
        if one.late is not None or one.terms is None or one.version in {each.version for each in settled}:
            continue
        late = judge(one)
        if late.decision is Decision.DEMOTE:
            settled += _with_it(store, chain[number + 1 :], late)
        if late.decision is not Decision.HOLD:
            settled.append(settle(store, late))
    return settled


def settle(store: Store, late: Verdict) -> Verdict:
    """Record what settles a promotion; return the verdict that holds, which is the one recorded first."""
    store.add_verdict(late)
    return next(each for each in store.verdicts(late.version) if each.id == late.id)


def settle_by_hand(store: Store, version: int, decision: Decision, by: str, reason: str) -> Verdict:
    """Settle a promotion by the word of a person; return the verdict that holds.

    The word stands above the cycle's own verdict, and loses against that of a person who was faster. Versions
    that were promoted since are demoted with it. Raises LateError for a version that was not promoted, or is
    served no more.
    """
    chain = [each for each in promotions(store) if not each.put_back]
    at = next((number for number, each in enumerate(chain) if each.version == version), None)
    if at is None:
        served = ", ".join(str(each.version) for each in chain) or "none"
        raise LateError(f"version {version} is no promotion that stands: those are {served}")
    one = chain[at]
    if decision is Decision.DEMOTE and one.replaced is None:
        raise LateError(f"nothing tells which version {version} replaced: promote another one over it")
    said = f"{by} said {decision.value}" + (f": {reason}" if reason else "")
    log_cycle(store, said_now(by, CycleAction(decision.value), detail=f"version {version}: {reason}"))
    evidence, id_ = {"release": one.verdict.id, "by": by}, f"{one.verdict.id}/late{WORD}"
    late = Verdict(version=version, decision=decision, reason=said, evidence=evidence, id=id_)
    if not one.demoted and decision is Decision.DEMOTE:
        _with_it(store, chain[at + 1 :], late)
    return settle(store, late)


def _with_it(store: Store, later: Sequence[Promotion], late: Verdict) -> list[Verdict]:
    """Demote the promotions after a demoted one; a confirmed one too, since it was compared with that."""
    return [
        settle(
            store,
            Verdict(
                version=each.version,
                decision=Decision.DEMOTE,
                reason=f"it was trained on version {late.version}, which was {late.reason}",
                evidence={"release": each.verdict.id, "with": late.evidence["release"]},
                id=f"{each.verdict.id}/late" + ("" if each.late is None else f"/with/{late.id}"),
            ),
        )
        for each in reversed(later)
    ]


def fallen(chain: Sequence[Promotion]) -> list[Promotion]:
    """Return the newest promotions that stand no more, oldest first: what the first replaced is served again.

    A demoted one stands while a person keeps a newer one, which was trained on it.
    """
    standing = max((n for n, each in enumerate(chain, 1) if not each.demoted), default=0)
    return list(chain[standing:])
