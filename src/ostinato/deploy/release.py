"""A candidate's way to people after its shadow: canary, ramp, split; and what each step may decide.

The steps before the split protect people and promote nobody. Each is a trial of its own on a small share of
users, which looks for harm after every session: at the guardrails as soon as a session has ended, and at the
reward when that is settled. They share the chance `BEFORE_SPLIT` of rolling back an equal candidate. A wider
share keeps everybody who met the challenger with it (`gateway/arms.py`), so only sessions of one step are
compared with each other.

The split is the trial of `abtest.py`. That a candidate was not rolled back before cannot raise the chance of
promoting it wrongly: a promotion needs both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ostinato.deploy.abtest import absences, compare, grounds, rise_words, rises
from ostinato.deploy.statistics import interval
from ostinato.deploy.terms import Attendance, Trial, TrialSession
from ostinato.deploy.traffic import shared
from ostinato.store import Store
from ostinato.store.releases import Release, ReleaseStage, enter
from ostinato.types import Arm, Decision, Verdict

REWARD_PART = 0.8
"""The part of a step's chance of a false roll-back that the reward has: a loss of three points is hard to
see, and a guardrail's limit is several times as large."""
BEFORE_SPLIT = 0.05
"""The chance of a false roll-back in all steps before the split together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a release.

    >>> Step(stage=ReleaseStage.CANARY, share=0.1, sessions=80).share
    0.1
    """

    stage: ReleaseStage
    share: float
    """The share of users on the challenger."""
    sessions: int
    """The sessions of both arms together after which the step is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlan:
    """The steps that are settled before the first person meets the candidate; the last one is the split.

    >>> trial = Trial(experiment="e1", share=0.5, horizon=800, alpha=0.02)
    >>> [step.share for step in plan_of(trial, canary=(0.05, 200), ramp=(0.2,)).steps]
    [0.05, 0.2, 0.5]
    """

    trial: Trial
    """The terms of the split."""
    steps: tuple[Step, ...]
    early: Mapping[str, float] = field(default_factory=dict)
    """The guardrails of the steps before the split: the limit of each, as in `Trial.guardrails`."""

    def __post_init__(self) -> None:
        shares = [step.share for step in self.steps]
        if not shares or shares != sorted(set(shares)) or shares[0] <= 0:
            raise ValueError(f"a release widens from step to step, and its shares are {shares}")

    def trial_of(self, number: int) -> Trial:
        """Return the terms of one step."""
        step = self.steps[number]
        if step.stage is ReleaseStage.SPLIT:
            return self.trial
        harm = BEFORE_SPLIT / (len(self.steps) - 1)
        return replace(self.trial, share=step.share, horizon=step.sessions, harm=harm, guardrails=self.early)


def plan_of(
    trial: Trial,
    *,
    canary: tuple[float, int],
    ramp: Sequence[float],
    early: Mapping[str, float] | None = None,
) -> ReleasePlan:
    """Return the plan that ends in `trial`.

    `canary` is the share of the canary and the number of its sessions, 0 for no step before the split; each
    share of `ramp` takes as many sessions. Raises ValueError unless the shares rise.
    """
    share, sessions = canary
    split = Step(stage=ReleaseStage.SPLIT, share=trial.share, sessions=trial.horizon)
    if sessions == 0:
        return ReleasePlan(trial=trial, steps=(split,))
    first = Step(stage=ReleaseStage.CANARY, share=share, sessions=sessions)
    wider = [Step(stage=ReleaseStage.RAMP, share=each, sessions=sessions) for each in ramp]
    return ReleasePlan(trial=trial, steps=(first, *wider, split), early=early or {})


def guard(
    version: int,
    trial: Trial,
    ended: Sequence[TrialSession],
    settled: Sequence[TrialSession],
    before: Mapping[str, float],
    *,
    attendance: Sequence[Attendance] = (),
) -> Verdict:
    """Return ROLL_BACK when a step before the split has shown harm, HOLD when it has not.

    The guardrails are read from all `ended` sessions, whatever their age, those of people from the
    `attendance` of everybody who came, and the reward from the `settled` ones, adjusted for the users' means
    `before` the release. All bounds hold at every look together, and are of means over users.
    """
    ended, settled = (sorted(each, key=lambda s: s.at)[: trial.horizon] for each in (ended, settled))
    evidence, problem = grounds(trial, ended)
    evidence["release"] = evidence.pop("experiment")  # it tests no promotion, so it spends none of the budget
    del evidence["alpha"], evidence["claim"]
    if problem:
        return Verdict(version=version, decision=Decision.HOLD, reason=problem, evidence=evidence)
    fraction = len(ended) / trial.horizon
    each = trial.harm * (1 - REWARD_PART) / max(1, len(trial.guardrails))
    rails = {name: interval(rise, each, fraction) for name, rise in rises(trial, ended).items()}
    rails |= {
        name: interval(rise, each, part * fraction)
        for name, (rise, part) in absences(trial, attendance).items()
    }
    evidence["rails"] = {name: asdict(rise) for name, rise in rails.items()}
    if beyond := [name for name, rise in rails.items() if rise.low > trial.guardrails[name]]:
        shown = ", ".join(rise_words(trial, name, rails[name]) for name in beyond)
        reason = f"guardrail, mean over users: {shown}"
        return Verdict(version=version, decision=Decision.ROLL_BACK, reason=reason, evidence=evidence)
    _, problem = grounds(trial, settled)
    if problem:
        reason = f"no harm shown; of settled sessions {problem}"
        return Verdict(version=version, decision=Decision.HOLD, reason=reason, evidence=evidence)
    values = [(session, session.value) for session in settled]
    reward = interval(compare(trial, values, before), trial.harm * REWARD_PART, len(settled) / trial.horizon)
    evidence["harming"] = asdict(reward)
    decision = Decision.ROLL_BACK if reward.high < 0 else Decision.HOLD
    word = "worse" if decision is Decision.ROLL_BACK else "no harm shown"
    return Verdict(
        version=version,
        decision=decision,
        reason=f"{word}: {reward} reward a session, mean over users",
        evidence=evidence,
    )


def widen(store: Store, plan: ReleasePlan, number: int, arms: tuple[Arm, Arm]) -> Release:
    """Let a step begin, or go on after a kill; `arms` = (champion, challenger).

    Return the row that holds now, which is that of the end when somebody rolled back before.
    """
    step = plan.steps[number]
    champion, challenger = arms
    wider = (replace(champion, share=1 - step.share), replace(challenger, share=step.share))
    return enter(
        store,
        plan.trial.experiment,
        step.stage,
        step=number,
        share=step.share,
        arms=lambda present: shared(present, wider),
    )


def end(store: Store, experiment: str, after: tuple[Arm, Arm], reason: str) -> Release:
    """End a release for ever, and give both arms their traffic `after` it, as `promoted` or `restored` say.

    A gateway notices within a quarter of a second, and no process can widen the experiment afterwards. Return
    the row that ended it: the first one, whoever wrote it; then nothing changes.
    """
    return enter(
        store,
        experiment,
        ReleaseStage.OVER,
        step=0,
        share=0.0,
        arms=lambda present: shared(present, after),
        detail=reason,
    )
