"""The experiments: a trial's confidence sequence, its guardrails, what it still needs, and its conclusion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from ostinato.dashboard.access import Viewer
from ostinato.dashboard.reading.base import Answer, Asked, NotThereError, RecordSource
from ostinato.dashboard.reading.versions import verdict_of
from ostinato.dashboard.reading.words import audit, steering
from ostinato.store.cycle_log import CycleAction
from ostinato.store.sql.schema import cycle_log
from ostinato.types import Verdict
from ostinato.web.plain import line_of

DAY_S = 86_400.0


def listed(reading: RecordSource, _: Viewer, __: Asked) -> Answer:
    """Return every experiment with its verdict, the newest first."""
    terms, verdicts = _terms(reading), _verdicts(reading.store.verdicts())
    running = {arm.experiment for arm in reading.store.arms() if arm.experiment and arm.share > 0}
    names = list(dict.fromkeys((*terms, *verdicts, *sorted(running))))
    rows = [_row(name, terms.get(name), verdicts.get(name, ()), name in running) for name in reversed(names)]
    return {"title": "Experiments", "experiments": rows}


def one(reading: RecordSource, _: Viewer, asked: Asked) -> Answer:
    """Return one experiment. Raises NotThereError."""
    name = asked.get("id", "")
    terms, verdicts = _terms(reading).get(name), _verdicts(reading.store.verdicts()).get(name, ())
    arms = [arm for arm in reading.store.arms() if arm.experiment == name and arm.share > 0]
    if not (terms or verdicts or arms) or not name:
        raise NotThereError("no experiment of this id is in the store")
    row, evidence = _row(name, terms, verdicts, bool(arms)), _evidence(verdicts)
    seen: Answer = {"looks": [], "waiting": 0, "note": None}
    if terms is None:
        seen["note"] = "Its terms were not logged, so it cannot be judged again: only its verdict is left."
    elif reading.loop is None:
        seen["note"] = "Only the record is open here: `ostinato dashboard --directory RUN` judges it again."
    else:
        ended = evidence["sessions"] if evidence is not None and not arms else None
        seen |= reading.loop.looks(reading.store, terms, reading.clock(), ended)
        if evidence is not None and ended is not None:
            seen["looks"] = _up_to_the_verdict(seen["looks"], evidence)
    last = seen["looks"][-1] if seen["looks"] else None
    return {
        "title": f"Experiment {line_of(name, 40)}",
        "experiment": row,
        "terms": terms,
        **seen,
        "evidence": evidence if last is None else None,
        "rails": _rails(terms, last or evidence),
        "needs": _needs(terms, seen["looks"], reading.clock()) if arms else None,
        "words": _conclusion(row, last),
        "arms": [{"name": line_of(arm.name, 40), "version": arm.version, "share": arm.share} for arm in arms],
        "audit": audit(reading.store, since=terms["since"] if terms else 0.0),
        "steering": steering(reading) if arms else None,
        "now": reading.clock(),
    }


def _terms(reading: RecordSource) -> dict[str, Answer]:
    """Return the logged terms of each trial, by its id, oldest first."""
    query = select(cycle_log.c.detail).where(cycle_log.c.action == CycleAction.TRIAL_BEGAN.value)
    with reading.store.database.read() as connection:
        details = list(connection.scalars(query.order_by(cycle_log.c.order)))
    return {terms["experiment"]: terms for terms in map(json.loads, details)}


def _verdicts(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    by_experiment: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        trial = verdict.evidence.get("trial")
        inner = trial if isinstance(trial, Mapping) else verdict.evidence
        of_trial, late, _ = verdict.id.partition("/late")
        if name := of_trial if late else inner.get("experiment"):
            by_experiment.setdefault(str(name), []).append(verdict)
    return by_experiment


def _row(name: str, terms: Answer | None, verdicts: Sequence[Verdict], running: bool) -> Answer:
    last = verdict_of(verdicts[-1]) if verdicts else None
    versions = terms["versions"] if terms else {}
    if not versions and last:
        versions = {"challenger": last["version"]}
    return {
        "id": name,
        "name": line_of(name, 40),
        "versions": versions,
        "since": terms["since"] if terms else None,
        "claim": terms["claim"] if terms else None,
        "running": running,
        "verdict": last,
        "verdicts": [verdict_of(verdict) for verdict in verdicts],
    }


def _evidence(verdicts: Sequence[Verdict]) -> Answer | None:
    """Return the figures of the last verdict that a trial reached by itself."""
    for verdict in reversed(verdicts):
        trial = verdict.evidence.get("trial")
        inner: Any = trial if isinstance(trial, Mapping) else verdict.evidence
        if "promoting" in inner:
            return dict(inner)
    return None


def _up_to_the_verdict(looks: Sequence[Answer], evidence: Mapping[str, Any]) -> list[Answer]:
    """Return the looks with the figures of the verdict as the last one.

    What the verdict says and what is drawn are then one computation, whatever was heard since.
    """
    if not looks:
        return []
    names = {"sessions": "sessions", "users": "users", "reward": "promoting"}
    names |= {name: name for name in ("harming", "tokens", "within")}
    said = {name: evidence[key] for name, key in names.items() if key in evidence}
    return [look for look in looks if look["sessions"] < evidence["sessions"]] + [{**looks[-1], **said}]


def _rails(terms: Answer | None, figures: Mapping[str, Any] | None) -> list[Answer]:
    """Return each guardrail's change with its limit, where the limit is known.

    The change is that beyond `scale` times the champion's mean.
    """
    within = figures.get("within") if figures else None
    limits, scales = (terms.get(name, {}) if terms else {} for name in ("guardrails", "scales"))
    rails = [
        {"name": line_of(name, 40), **change, "limit": limits.get(name), "scale": scales.get(name, 1.0)}
        for name, change in (within or {}).items()
    ]
    for rail in rails:
        limit = rail["limit"]
        rail["state"] = (
            "limit not logged"
            if limit is None
            else "within its limit"
            if rail["high"] < limit
            else "beyond its limit"
            if rail["low"] > limit
            else "not shown yet"
        )
    return rails


def _needs(terms: Answer | None, looks: Sequence[Answer], now: float) -> Answer | None:
    """Return what a trial under way still needs, at the traffic that it had so far."""
    if terms is None:
        return None
    counted, horizon = (looks[-1]["sessions"] if looks else 0), terms["horizon"]
    a_day = counted / max(now - terms["since"], 3_600.0) * DAY_S
    needs: Answer = {
        "sessions": counted,
        "horizon": horizon,
        "a_day": a_day,
        "until": now + (horizon - counted) / a_day * DAY_S if a_day and horizon > counted else None,
    }
    change = looks[-1]["reward"] if looks else None
    if change and change["estimate"] > 0 and change["low"] <= 0:
        # The bound's distance shrinks as 1 / n: its error as 1 / √n, and its quantile with √(n / horizon).
        shown_at = round(counted * (change["estimate"] - change["low"]) / change["estimate"])
        needs["shown_at"] = shown_at
        needs["shown_on"] = now + (shown_at - counted) / a_day * DAY_S if a_day else None
    return needs


def _conclusion(row: Answer, last: Answer | None) -> str:
    """Return what the experiment says, in plain words."""
    version = row["versions"].get("challenger")
    candidate = "The challenger" if version is None else f"Version {version}"
    decided = row["verdict"] and row["verdict"]["decision"]
    if decided in {"promote", "promote_cheaper"} and not row["running"]:
        how = "cheaper and no worse" if decided == "promote_cheaper" else "better"
        return f"{candidate} was shown to be {how}, and everybody was given it until late facts speak."
    promoted = any(each["decision"].startswith("promote") for each in row.get("verdicts", ()))
    if promoted and decided in {"confirm", "inconclusive"}:
        return f"{candidate} was promoted, and stays: {row['verdict']['reason']}"
    if decided == "demote":
        return f"{candidate} was promoted, and taken back since: {row['verdict']['reason']}"
    if decided == "roll_back" and not row["running"]:
        return f"{candidate} was taken back: {row['verdict']['reason']}"
    if decided and not row["running"]:
        return f"{candidate} was not shown to be better, so the version before it stayed."
    if last is None:
        return f"{candidate} is being tried; no session of it has counted yet."
    if last["void"]:
        return f"The trial cannot be read: {last['void']}"
    change = last["reward"]
    if change is None:
        return f"{candidate} is being tried; too few users have come to compare anything: {last['reason']}"
    gains = last["reason"].partition("\n")[2]
    beside = f" What is reported beside: {gains}." if gains else ""
    if change["low"] > 0:
        return f"{candidate} is better so far, and the interval no longer includes zero.{beside}"
    if change["high"] < 0:
        return f"{candidate} is worse so far, and the interval no longer includes zero.{beside}"
    bounds = f"{change['low']:+.3f} to {change['high']:+.3f}".replace("-", "\u2212")
    shown = "Nothing is shown yet: the reward of a session may have changed by anything from"
    return f"{shown} {bounds}.{beside}"
