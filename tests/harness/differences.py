"""Everything in which practice differs from the product, with the reason: the whole list.

The same agent, tools, prompts, permissions and summaries run in both. `tests/test_one_harness.py` drives one
task through every front door and holds that token streams are the same byte for byte, that requests differ
only in what is listed under HEADER and BODY, and that the settings of practice and product differ only in
what is listed under SETTING.
"""

from dataclasses import dataclass
from enum import StrEnum


class Where(StrEnum):
    HEADER = "header"  # of a request to the gateway
    BODY = "body"  # of such a request
    SETTING = "setting"  # a field of HarnessConfig
    SURROUNDINGS = "surroundings"  # what the agent is given to work with


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same.

    >>> next(each.practice for each in DIFFERENCES if each.name == "stream")
    'left out'
    """

    where: Where
    name: str
    practice: str
    product: str
    why: str


DIFFERENCES = (
    Difference(
        where=Where.HEADER,
        name="x-session-source",
        practice="practice or bench",
        product="live",
        why="the record says why a session took place; the model never sees it",
    ),
    Difference(
        where=Where.HEADER,
        name="x-task-id",
        practice="the task's id",
        product="left out",
        why="people bring no task; the model never sees it",
    ),
    Difference(
        where=Where.BODY,
        name="stream",
        practice="left out",
        product="true",
        why="a person reads along; the tokens are the same either way",
    ),
    Difference(
        where=Where.BODY,
        name="stream_options",
        practice="left out",
        product="include_usage",
        why="goes with stream",
    ),
    Difference(
        where=Where.SETTING,
        name="max_turns",
        practice="10",
        product="50",
        why="practice tasks are small, and a rollout that strays should end",
    ),
    Difference(
        where=Where.SETTING,
        name="max_tokens",
        practice="64 a turn",
        product="2,048 a turn",
        why="practice tasks need few words; a cut reply ends the session in both",
    ),
    Difference(
        where=Where.SETTING,
        name="max_context",
        practice="448",
        product="32,000",
        why="the demo's model reads no more",
    ),
    Difference(
        where=Where.SETTING,
        name="temperature",
        practice="1.0",
        product="0.3",
        why="the policy gradient needs samples of the policy itself; a person wants the likely answer",
    ),
    Difference(
        where=Where.SETTING,
        name="command_timeout_s",
        practice="20",
        product="600",
        why="people have slow test suites",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="sandbox",
        practice="a copy with limits, no network where namespaces are to be had, a fixed environment",
        product="in place, as the person, with their environment",
        why="a rollout must harm nothing and be the same on every machine; a person wants their own tools",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="permissions",
        practice="everything is allowed",
        product="rules, and the person is asked",
        why="the sandbox is the boundary; the same object decides, and a denial is read as an observation",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="seed",
        practice="derived from the run's seed, the prompt and the place in its group",
        product="left to the engine",
        why="practice must be repeatable; the model is asked in the same way",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="model",
        practice="the version that the run samples",
        product="the one that the person chose with /model, else the gateway's choice",
        why="a name in the request picks who answers; the prompt does not hold it",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="user",
        practice="answers from the task's intent card",
        product="a person",
        why="nobody sits beside a rollout",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="keeper, log, observer",
        practice="none",
        product="checkpoints for undo, the session's log, a screen",
        why="they watch and keep; nothing of theirs reaches the model",
    ),
    Difference(
        where=Where.SURROUNDINGS,
        name="providers",
        practice="the search service, where the profile has semantic_search",
        product="the same service where it is configured, and MCP servers",
        why="MCP tools change the hash of the harness, so such sessions are told apart",
    ),
)
