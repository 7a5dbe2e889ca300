"""The trainers of a run, in processes of their own: learn from what was collected, put old weights back."""

import json
from pathlib import Path
from typing import Any

from ostinato.loop.results import Published
from ostinato.loop.run import START
from ostinato.loop.services import Service, watch
from ostinato.loop.workshop import Workshop
from ostinato.store import Ledger


async def refine(shop: Workshop, champion: int) -> Published:
    """Let the learner go on from the champion on the groups that wait.

    Return the candidate's version, which is the champion's when there was nothing to learn from.
    """
    live = shop.config.live
    learner = await start_learner(
        shop,
        "live",
        until=champion + live.versions,
        groups=None,
        learning_rate=live.learning_rate,
        before="practice",
    )
    log = shop.run.directory / "learner-live" / "learner.jsonl"
    with shop.show.stage("train on live sessions", total=live.versions) as bar:
        await watch(learner, lambda: bar.at(last_line(log).get("version", champion) - champion))
    Ledger(shop.store).close_out()
    return Published(version=last_line(log)["version"])


async def restore(shop: Workshop, champion: int) -> Published:
    """Publish the champion's weights as the newest version, which the next cycle learns from."""
    run = shop.run
    settings = (
        "--store",
        str(run.store_path),
        "--objects",
        str(run.objects_path),
        "--version",
        str(champion),
    )
    process = await shop.services.start("put-back", "ostinato.train.put_back", settings, keep=False)
    await watch(process, lambda: None)
    version = max(row.version for row in shop.store.versions())
    shop.show.say(f"version {version} has the weights of version {champion} again, which stays served")
    return Published(version=version)


async def start_learner(
    shop: Workshop,
    name: str,
    *,
    until: int,
    groups: int | None,
    learning_rate: float,
    before: str | None = None,
) -> Service:
    """Start the policy-gradient learner, which goes on from the newest version to version `until`.

    `groups`: those in one version; None spreads the groups that wait over all of them. `before`: the learner
    whose second moments it begins with.
    """
    run, staleness = shop.run, shop.config.refine.staleness
    folder = run.directory / f"learner-{name}"
    return await shop.services.start(
        f"learner-{name}",
        "ostinato.train.learner",
        [
            *("--store", str(run.store_path), "--objects", str(run.objects_path)),
            *("--checkpoint", str(run.checkpoint(START)), "--run-dir", str(folder)),
            *("--until", str(until), "--staleness", str(staleness)),
            *(("--spread",) if groups is None else ("--groups", str(groups))),
            *("--learning-rate", str(learning_rate)),
            *(() if before is None else ("--before", str(run.directory / f"learner-{before}"))),
        ],
        keep=False,
    )


def last_line(path: Path) -> dict[str, Any]:
    """Return the last whole JSON line of a trainer's log; empty before there is one."""
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        line: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError):  # nothing yet, or the trainer is in the middle of writing
        return {}
    return line
