"""Teaching is repeatable: one seed gives the same lessons in the same order, whichever of them ends first."""

from dataclasses import replace
from pathlib import Path

from tests.resources import fake_resources

from ostinato.loop.stages import teach
from ostinato.train.teacher import TeacherRows


async def lessons(folder: Path, *, at_once: int) -> list[tuple[int, ...]]:
    """Return the tokens of what fine-tuning would learn from, in its order."""
    async with fake_resources(folder, lambda session_id, turn: "done", []) as resources:
        few = replace(resources.config.teach, lessons=3, demonstrations=2, at_once=at_once)
        resources.config = replace(resources.config, teach=few)
        assert (await teach._give(resources)).sessions == 6
        return [tuple(row.ids) for row in TeacherRows(resources.store, context=10_000).read()]


async def test_one_seed_gives_the_same_lessons_whichever_ends_first(tmp_path: Path) -> None:
    first = await lessons(tmp_path / "first", at_once=3)
    assert len(first) >= 6 and await lessons(tmp_path / "again", at_once=1) == first
