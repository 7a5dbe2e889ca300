"""The work of `ostinato sft`: show solutions, choose demonstrations, fine-tune, tell the held-out loss.

::

    tasks ─► shown in the harness ─► the run's record ─┐
    records: solved and imported sessions ─────────────┴► chosen.json ─► train.sft ─► checkpoints/taught
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from ostinato.bench.select.base import SelectError, Window
from ostinato.bench.select.candidates import open_local
from ostinato.loop.resources import RunResources, open_resources
from ostinato.loop.results import Taught
from ostinato.loop.run import START, Run, write_whole
from ostinato.loop.sft.choose import Chooser, ChosenSessions, FencedTasks, SftError, able, showable
from ostinato.loop.sft.config import SftRunConfig
from ostinato.loop.show import Show
from ostinato.loop.stages.prepare import load_wire, prepare
from ostinato.loop.stages.teach import account_unread, fine_tune, give
from ostinato.model.config import positions_of
from ostinato.store import Store
from ostinato.store.ledger.prompt_queries import shown_by
from ostinato.tasks.source import Problem
from ostinato.train.samples import demonstrated
from ostinato.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSources:
    """The choice from every source, by its name.

    >>> ChosenSources(sources={}).sources
    {}
    """

    sources: Mapping[str, ChosenSessions]


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuned(ChosenSources):
    """The result, with the loss of held-out sessions by source, in nats a token that was said.

    A source without any has no loss, and none is known of a model that our decoder cannot express.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]


async def fine_tuned(config: SftRunConfig, run: Run, show: Show) -> FineTuned:
    """Make a checkpoint of the demonstrations that the settings name. Raises SftError where there is none."""
    fence = FencedTasks.around(config.fence)
    await prepare(config.run, run)
    async with open_resources(config.run, run, show) as resources:
        choice = partial(_choose, config, resources, fence)
        chosen = (await resources.stage("choose", ChosenSources, choice)).sources
        path = run.directory / "chosen.json"
        write_whole(path, json.dumps(_by_record(chosen), indent=1) + "\n")
        await fine_tune(resources, path)
        account_unread(resources)
    before, after = [await _losses(run, name, chosen) for name in (START, "taught")]
    return FineTuned(sources=chosen, before=before, after=after)


async def _choose(config: SftRunConfig, resources: RunResources, fence: FencedTasks) -> ChosenSources:
    """Show the solutions of tasks, and choose among the sessions of every source."""
    start = resources.run.checkpoint(START)
    chooser = Chooser(
        load_wire(start)[1],
        positions_of(start) or config.harness.max_context,
        config.profiles,
        fence,
        held_out=config.held_out,
        seed=config.seed,
    )
    found = {}
    records_first = sorted(config.sources.items(), key=lambda item: item[1].tasks is not None)
    for name, source in records_first:  # which may be refused, before hours of showing
        if source.tasks is None:
            found[name] = chooser.of_record(name, source)
            continue
        left_out = Counter[str]()
        tasks = showable(name, source, fence, left_out)
        profiles = able(config.profiles, left_out, len(tasks))
        work = partial(_show, resources, tasks, profiles)
        taught = await resources.stage(f"show/{name}", Taught, work)
        left_out += Counter({"solutions whose showing failed through us": taught.left_out})
        found[name] = chooser.of_lessons(resources.store, resources.run.store, tasks, left_out)
    if not any(each.train for each in found.values()):
        reasons = sum((Counter(each.left_out) for each in found.values()), Counter[str]())
        said = "; ".join(f"{count} {reason}" for reason, count in reasons.items()) or "the sources are empty"
        raise SftError(f"there is no demonstration to learn from ({said})")
    return ChosenSources(sources=found)


async def _show(resources: RunResources, tasks: list[Task], profiles: list[str]) -> Taught:
    """Show the solution of each task that a run which was killed did not show already."""
    with resources.store.database.read() as connection:
        before = shown_by(connection, [task.key for task in tasks])
    fresh = list({task.key: task for task in tasks if task.key not in before}.values())
    problems = map(Problem.of, fresh)
    number = len(fresh) if profiles else 0
    return await give(resources, lambda: next(problems), number, len(profiles), profiles, examined=True)


def _by_record(chosen: Mapping[str, ChosenSessions]) -> dict[str, list[str]]:
    """Return the sessions to learn from by their record, for the trainer, and for a person who purges."""
    found: dict[str, dict[str, None]] = {}
    for each in chosen.values():
        found.setdefault(each.record, {}).update(dict.fromkeys(each.train))
    return {record: list(ids) for record, ids in found.items()}


async def _losses(run: Run, name: str, chosen: Mapping[str, ChosenSessions]) -> dict[str, float]:
    losses = {}
    try:
        async with open_local(name, run.checkpoint(name), 1) as model:
            for source, each in chosen.items():
                with closing(Store.open(each.record)) as store:
                    turns = store.turns_of(each.held_out)
                rows = [row for some in turns.values() for row in demonstrated(some)]
                scores = await model.logprobs([Window(ids=row.ids, first=1) for row in rows])
                said = [
                    score
                    for row, some in zip(rows, scores, strict=True)
                    for score, sampled in zip(some, row.mask[1:], strict=True)
                    if sampled
                ]
                if said:
                    losses[source] = -sum(said) / len(said)
    except SelectError:
        return {}
    return losses
