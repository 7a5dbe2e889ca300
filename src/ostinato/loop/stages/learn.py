"""The trainers of a run, in processes of their own: learn from what was collected, put old weights back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ostinato.loop.base import Resources
from ostinato.loop.resources import RunResources
from ostinato.loop.results import Published
from ostinato.loop.run import START
from ostinato.loop.services import Service
from ostinato.store import Ledger
from ostinato.train.config import LearnerConfig, LearnerProcess, RepublishProcess

LEARNER = "ostinato.train.learner"


async def refine(resources: Resources, champion: int) -> Published:
    """Let the learner go on from the champion on the groups that wait.

    Return the candidate's version, which is the champion's when there was nothing to learn from. The
    collector bounds the age of the sessions in hours: how many versions ago they were says nothing, since
    candidates are made while one champion serves on.
    """
    live, until = resources.config.live, champion + resources.config.live.versions
    config = replace(
        resources.config.refine,
        versions=None,
        spread=True,
        learning_rate=live.learning_rate,
        staleness=until,
    )
    settings = _settings(resources, "live", config, until=until, before="practice")
    log = resources.run.directory / "learner-live" / "learner.jsonl"
    with resources.show.stage("train on live sessions", total=live.versions) as bar:
        await resources.train(
            "learner-live",
            LEARNER,
            settings,
            lambda: bar.at(last_line(log).get("version", champion) - champion),
        )
    Ledger(resources.store).close_out()
    return Published(version=last_line(log)["version"])


async def publish(resources: Resources) -> Published:
    """Publish the start checkpoint as version 0, which is the first act of any learner."""
    config = replace(resources.config.refine, versions=None)
    await resources.train(
        "learner-start", LEARNER, _settings(resources, "start", config, until=0), lambda: None
    )
    return Published(version=0)


async def restore(resources: Resources, champion: int) -> Published:
    """Publish the champion's weights as the newest version, unless they are; it is what is learnt from."""
    if champion == max((row.version for row in resources.store.versions()), default=champion):
        return Published(version=champion)
    run = resources.run
    settings = RepublishProcess(store=run.store, objects=run.objects, version=champion)
    await resources.train("put-back", "ostinato.train.republish", settings, lambda: None)
    version = max(row.version for row in resources.store.versions())
    resources.show.say(f"version {version} has the weights of version {champion} again, to learn from")
    return Published(version=version)


async def start_learner(resources: RunResources, name: str, config: LearnerConfig, *, until: int) -> Service:
    """Start the policy-gradient learner, which goes on from the newest version to version `until`."""
    settings = _settings(resources, name, config, until=until)
    return await resources.services.start(f"learner-{name}", LEARNER, settings, keep=False)


def _settings(
    resources: Resources, name: str, config: LearnerConfig, *, until: int, before: str | None = None
) -> LearnerProcess:
    """Return the settings of a learner; `before` names the one whose second moments it begins with."""
    run = resources.run
    return LearnerProcess(
        store=run.store,
        objects=run.objects,
        checkpoint=run.checkpoint(START),
        run_dir=run.directory / f"learner-{name}",
        until=until,
        before=None if before is None else run.directory / f"learner-{before}",
        learner=config,
        trainer=resources.config.trainer,
    )


def last_line(path: Path) -> dict[str, Any]:
    """Return the last whole JSON line of a trainer's log; empty before there is one."""
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        line: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):  # nothing yet, or the trainer is in the middle of writing
        return {}
    return line
