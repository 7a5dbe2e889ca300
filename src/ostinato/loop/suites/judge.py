"""The judge of quality that a command names, and the commands of the laboratory that calibrate one."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostinato.laboratory import laboratory

if TYPE_CHECKING:
    from ostinato.bench.judge import RubricJudge

JUDGE_KEY = "OSTINATO_JUDGE_KEY"


def register(group: Any) -> None:
    """Add both to the commands of `ostinato bench`."""
    calibrate = group.add_parser(
        "calibrate", help="ask a judge of quality about labelled pairs of diffs, and print how far it agrees"
    )
    calibrate.add_argument("judge", metavar="MODEL@URL", help=f"the judge (its key is in {JUDGE_KEY})")
    calibrate.add_argument("--pairs", type=Path, default=None, help="labelled pairs (default: those shipped)")
    calibrate.add_argument("--json", action="store_true", help="print JSON")
    calibrate.set_defaults(run=laboratory("judges.command:calibrate_judge"))
    pairs = group.add_parser(
        "pairs",
        help="make labelled pairs of a folder of tasks: their solutions beside ones made worse by rule",
    )
    pairs.add_argument("tasks", type=Path, metavar="TASKS", help="a folder of mined tasks")
    pairs.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write (.jsonl)")
    pairs.set_defaults(run=laboratory("judges.command:make_pairs"))


def named(word: str) -> tuple[str, str]:
    """Return model and address of a word like `qwen3@http://127.0.0.1:8000/v1`. Raises ValueError."""
    model, _, url = word.partition("@")
    if not model or not url.startswith(("http://", "https://")):
        raise ValueError(f"{word!r} is no MODEL@URL, as qwen3@http://127.0.0.1:8000/v1")
    return model, url.rstrip("/")


@asynccontextmanager
async def open_judge(word: str) -> AsyncIterator["RubricJudge"]:
    """Open the judge that a command line names; its key is in the environment. Raises ValueError."""
    import aiohttp

    from ostinato.bench.judge import ANSWER_TOKENS, PATIENCE_S, RubricJudge
    from ostinato.rewards.judge_client import JudgeClient

    model, url = named(word)
    async with aiohttp.ClientSession() as http:
        key = os.environ.get(JUDGE_KEY, "")
        yield RubricJudge(JudgeClient(http, url, model, key, max_tokens=ANSWER_TOKENS, patience_s=PATIENCE_S))
