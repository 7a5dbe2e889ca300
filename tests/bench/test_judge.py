import json
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest
from fuzz.endpoint import Message, Model, endpoint, says

from ostinato.bench.judge import MOST_CHARACTERS, RUBRIC, Opinion, RubricJudge, diff, judged
from ostinato.rewards.judge_client import JudgeClient, NoVerdictError
from ostinato.tasks.pebble import generate, provide
from ostinato.types import Task

GOOD, BAD = "+return x\n", "+print(x)\n+return x\n"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return provide(generate("fix", "seeds", 1), tmp_path / "task")


async def opinion(model: Model, first: str = GOOD, second: str = BAD) -> Opinion:
    async with endpoint(model) as url, aiohttp.ClientSession() as http:
        return await RubricJudge(JudgeClient(http, url, "m")).opinion("mend f", first, second)


def shown(messages: Sequence[Message]) -> dict[str, str]:
    read: dict[str, str] = json.loads(messages[1]["content"])
    return read


def of_all(word: str) -> Message:
    return says("I think aloud: {so} " + json.dumps(dict.fromkeys(RUBRIC, word)))


async def test_both_orders_are_asked_and_sides_are_not_named() -> None:
    asked = []

    def model(_: str, messages: Sequence[Message]) -> Message:
        asked.append(shown(messages))
        return of_all("second" if "print" in asked[-1]["first"] else "first")

    assert await opinion(model) == dict.fromkeys(RUBRIC, (-1.0, -1.0))
    assert [(each["first"], each["second"]) for each in asked] == [(GOOD, BAD), (BAD, GOOD)]
    assert all(each.keys() == {"request", "first", "second"} for each in asked)


async def test_a_liking_for_one_place_cancels(task: Task) -> None:
    (task.directory / "solution" / "solution.patch").write_text(GOOD)
    async with endpoint(lambda *_: of_all("first")) as url, aiohttp.ClientSession() as http:
        found = await judged(RubricJudge(JudgeClient(http, url, "m")), task, {"calc.py": b"x\n"})
    assert found == {f"{aspect} by model/m": 0.5 for aspect in RUBRIC}


@pytest.mark.parametrize(
    "text",
    [
        "they are both fine",
        "{}",
        json.dumps({"scope": "first"}),
        json.dumps(dict.fromkeys(RUBRIC, "neither")),
        json.dumps(dict.fromkeys(RUBRIC, 1)),
    ],
)
async def test_rubbish_is_no_verdict(text: str) -> None:
    with pytest.raises(NoVerdictError):
        await opinion(lambda *_: says(text))


async def test_half_an_answer_is_no_verdict() -> None:
    answers = iter([of_all("first"), None])
    with pytest.raises(NoVerdictError, match="503"):
        await opinion(lambda *_: next(answers))


async def test_a_judge_that_is_away_is_named() -> None:
    async with aiohttp.ClientSession() as http:
        with pytest.raises(NoVerdictError, match="away"):
            await RubricJudge(JudgeClient(http, "http://127.0.0.1:1/v1", "m")).opinion("a", GOOD, BAD)


async def test_what_is_too_long_is_not_asked() -> None:
    with pytest.raises(NoVerdictError, match="longer"):
        await opinion(lambda *_: None, second="+" * (MOST_CHARACTERS + 1))


async def test_nothing_kept_is_nothing_to_compare_with(task: Task) -> None:
    for patch in task.directory.glob("solution/*.patch"):
        patch.unlink()
    async with aiohttp.ClientSession() as http:
        with pytest.raises(NoVerdictError, match="nobody kept"):
            await judged(RubricJudge(JudgeClient(http, "http://127.0.0.1:1/v1", "m")), task, {})


def test_a_diff_shows_what_was_added_and_deleted(task: Task) -> None:
    path = next(task.repo.glob("*.py")).name
    text = diff(task.repo, {"new.py": b"x = 1", path: None})
    assert "+++ b/new.py" in text and "+x = 1\n" in text and f"--- a/{path}" in text
