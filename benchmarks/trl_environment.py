"""Tier A of `benchmarks.trl_practice_worker`: an environment whose public methods are our profile's tools.

TRL opens it with `reset`, finds the tools by their signatures, and calls them one after another.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from fuzz.rollout_ids import RESULT_END, sampled_spans
from transformers import PreTrainedTokenizerBase

from benchmarks.trl_floor import Floor
from ostinato.harness.conversation import Outcome
from ostinato.harness.episode import CardUser, changes_left, verified
from ostinato.harness.execute import Executor
from ostinato.sandbox.base import Backend, Sandbox, Spec
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.exam.verdict_memory import RememberingVerifier
from ostinato.sandbox.exam.verifier import Verifier
from ostinato.tasks.base import load_task
from ostinato.types import Completion, Ending, FinishReason, Turn, new_id

TRIES = 4
"""The most times that a rollout is verified when a sandbox fails."""
TYPES = {"string": str, "integer": int, "boolean": bool, "array": list[str]}


def as_shipped(floor: Floor, words: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the arguments of the trainer in tier A."""
    backend = floor.loop.wait(choose_backend(floor.config.sandbox))
    verifier = RememberingVerifier(backend)  # as our sampler has it
    rows = []
    for path in floor.settings.tasks:
        messages = floor.messages(load_task(Path(path)).instruction)
        rows.append({"prompt": messages, "task": path})
    ours = floor.renderer.render(rows[0]["prompt"], floor.shown.tools)
    theirs = words.apply_chat_template(
        rows[0]["prompt"], tools=list(floor.shown.tools), add_generation_prompt=True, return_dict=False
    )
    if list(theirs) != ours:
        raise SystemExit("the two sides do not read the same prompt, token for token")

    async def rewards(
        prompts: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Any], environments: Any
    ) -> list[float]:
        prompt_ids = [floor.renderer.render(prompt[:2], floor.shown.tools) for prompt in prompts]
        finals = [completion[-1] for completion in completions]
        texts = ["" if last.get("tool_calls") else str(last.get("content") or "") for last in finals]
        rows = zip(environments, prompt_ids, completion_ids, texts, strict=True)
        return list(await asyncio.gather(*(env._reward(verifier, *row) for env, *row in rows)))

    def reward(
        prompts: Any, completions: Any, completion_ids: Any, environments: Any, **_: object
    ) -> list[float]:
        with floor.clock.phase("verify"):
            return floor.loop.wait(rewards(prompts, completions, completion_ids, environments))

    kind = environment(floor.shown.tools)
    _check_tests(kind(floor, backend), floor)
    return {
        "train_dataset": Dataset.from_list(rows),
        "environment_factory": lambda: kind(floor, backend),
        "reward_funcs": reward,
    }


def _check_tests(env: Any, floor: Floor) -> None:
    """End the process unless the tests of the first task, a K1, run and fail in its sandbox."""
    env.reset(task=floor.settings.tasks[0])
    told = env.bash(command="python -m pytest")
    floor.loop.wait(env._sandbox.destroy())
    floor.clock.spent.clear()
    if "FAILED" not in told:
        raise SystemExit(f"the tests of a task do not run in the sandbox that TRL's tools use:\n{told}")


class PebbleEnv:
    """One sandbox for one rollout; `environment` adds the tools of the profile as public methods."""

    def __init__(self, floor: Floor, backend: Backend) -> None:
        self._floor, self._backend = floor, backend
        self._calls: list[str] = []

    def reset(self, task: str, **_: object) -> None:
        """Open a fresh sandbox on the repository of a task."""
        self._task, self._calls = load_task(Path(task)), []
        with self._floor.clock.phase("tools"):
            self._sandbox: Sandbox = self._floor.loop.wait(self._backend.create(Spec(repo=self._task.repo)))
        self._executor = Executor(
            self._sandbox,
            CardUser(self._task),
            command_timeout_s=self._floor.config.harness.command_timeout_s,
            profile=self._floor.shown,
        )

    def _use(self, name: str, arguments: Mapping[str, Any]) -> str:
        self._calls.append(name)
        with self._floor.clock.phase("tools"):
            return self._floor.loop.wait(self._executor.run(name, arguments)).text

    async def _reward(
        self, verifier: Verifier, prompt: Sequence[int], ids: Sequence[int], final: str
    ) -> float:
        """Return the reward of the finished rollout, read from its tokens and its hidden tests."""
        session, floor = new_id(), self._floor
        turns = turns_of(floor, session, prompt, ids)
        changes = await changes_left(self._sandbox)
        await self._sandbox.destroy()
        outcome = Outcome(
            session_id=session,
            ending=Ending.FINISHED,
            final_message=final,
            turns=len(turns),
            calls=tuple(self._calls),
            broken=sum(turn.broken is not None for turn in turns),
        )
        for _ in range(TRIES):
            episode = await verified(verifier, self._task, outcome, changes)
            if episode.void is None:
                break
        else:  # TRL would take a rollout without a reward for one with a reward of 0
            raise RuntimeError(f"{self._task.id} could not be verified: {episode.void}")
        reward = floor.reward.score(session, turns, episode.signals())
        return floor.note(reward.total, solved=episode.solved)


def environment(tools: Sequence[Mapping[str, Any]]) -> type[PebbleEnv]:
    """Return a class with one public method for each tool, which TRL finds by its signature."""
    return type("PebbleEnv", (PebbleEnv,), {tool["function"]["name"]: _method(tool) for tool in tools})


def _method(tool: Mapping[str, Any]) -> Callable[..., str]:
    function = tool["function"]
    name, properties = function["name"], function["parameters"]["properties"]

    def use(self: PebbleEnv, **arguments: Any) -> str:
        return self._use(name, arguments)

    kinds = {key: TYPES[schema["type"]] for key, schema in properties.items()}
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    keys = [
        inspect.Parameter(
            key,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=inspect.Parameter.empty if key in function["parameters"]["required"] else None,
        )
        for key, kind in kinds.items()
    ]
    use.__name__, use.__annotations__ = name, {**kinds, "return": str}
    use.__doc__ = function["description"] + "\n\nArgs:\n" + "".join(f"    {key}: {key}\n" for key in kinds)
    use.__signature__ = inspect.Signature([own, *keys])  # type: ignore[attr-defined]
    return use


def turns_of(floor: Floor, session: str, prompt: Sequence[int], ids: Sequence[int]) -> list[Turn]:
    """Return the turns of a rollout, whose completion holds both what was sampled and what tools returned."""
    stops, header = floor.renderer.stop_ids, floor.renderer.tokenizer.id_of(RESULT_END)
    turns = list[Turn]()
    assert header is not None
    for start, end in sampled_spans(ids, stops, header):
        said = tuple(ids[start:end])
        stopped = said[-1] in stops
        turns.append(
            Turn(
                session_id=session,
                index=len(turns),
                segment=0,
                arm="trl",
                prompt_ids=(*prompt, *ids[:start]),
                completion=Completion(
                    ids=said,
                    logprobs=(0.0,) * len(said),
                    versions=(0,) * len(said),
                    finish=FinishReason.STOP if stopped else FinishReason.LENGTH,
                ),
                started_at=0.0,
                latency_s=0.0,
                broken=floor.renderer.parse(said).broken,
            )
        )
    return turns
