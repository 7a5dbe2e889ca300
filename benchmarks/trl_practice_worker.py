"""The peer of `benchmarks.learning --peer trl`: TRL's GRPOTrainer, run by the interpreter that has TRL.

`python -m benchmarks.trl_practice_worker SETTINGS.json`, with the fields of `Settings`. Tier A is TRL as it
ships: its own loop of generation and tools, over the environment of `trl_environment.py`. Tier B is its
learner alone: a rollout function lets our harness, gateway and engine sample. Both have our tokenizer, tasks,
sandbox, verifier and reward. A line is added to OUT/marks.jsonl when training begins and after each step, and
the weights of the versions to keep are saved as OUT/VERSION.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_template

from benchmarks.trl_environment import TRIES, as_shipped
from benchmarks.trl_floor import Clock, Floor, Settings
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.http import create_app, serve
from ostinato.loop.resources import open_resources
from ostinato.loop.run import START
from ostinato.loop.show import Show
from ostinato.model.checkpoint import load as load_checkpoint
from ostinato.model.template import CHAT_TEMPLATE
from ostinato.rollout import sampling
from ostinato.rollout.credit import Scored, credit_group
from ostinato.rollout.sampling import SlotWork
from ostinato.tasks.base import load_task
from ostinato.train.optimizer import AdamW, adamw, scales
from ostinato.train.samples import samples_of
from ostinato.train.trainer import RISE_STEPS
from ostinato.types import Arm, Task

TOOL_LOOP = """\
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
"""
SAID_END = "        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == 'tool' %}\n"
SAID_END_LATE = SAID_END.replace(
    "\\n' }}\n", "' }}{%- if not loop.last or add_generation_prompt %}{{- '\\n' }}{%- endif %}\n"
)
"""The end of an assistant's message without the line's end where nothing follows: our tokenizer joins it to
what comes next, and TRL asks that a longer conversation begins with the very tokens of the shorter one."""


class TimedTrainer(GRPOTrainer):
    """TRL's trainer with a clock around its generation."""

    clock: Clock

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        with self.clock.phase("generate"):
            return super()._generate_single_turn(*arguments, **named)


class Rollouts:
    """Sessions of our own harness behind our own gateway, sampled by an engine with the trainer's weights."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._stack = contextlib.AsyncExitStack()

    async def open(self) -> None:
        floor, config = self._floor, self._floor.config
        show = Show(Console(quiet=True))
        resources = self._resources = await self._stack.enter_async_context(
            open_resources(config, floor.run, show)
        )
        decoder, _, _ = load_checkpoint(floor.run.checkpoint(START))
        self._engine = EmbeddedEngine(
            decoder, version=0, slots=config.engine.slots, max_len=config.engine.context
        )
        app = create_app(self._engine, secret=resources.services.secret)
        self._site = await serve(app, "127.0.0.1", 0)
        resources.put_arm(Arm(name="practice", version=0, share=0.0, engines=(self._site.url,)))
        runner = resources.runner(resources.client("practice", "practice"))
        self._work = SlotWork(runner, config.practice)

    async def aclose(self) -> None:
        await self._stack.aclose()
        await self._site.close()
        await self._engine.aclose()

    async def sample(
        self, paths: Sequence[str], version: int, weights: Mapping[str, torch.Tensor]
    ) -> dict[str, list[Any]]:
        """Return what TRL asks of a rollout function; each path comes once for every session of its group."""
        await self._engine.swap(version, weights)
        size = self._floor.config.practice.group_size
        tasks = [load_task(Path(path)) for path in paths]
        episodes = await asyncio.gather(*(self._session(task, i % size) for i, task in enumerate(tasks)))
        trees = [Scored(trunk=None, branches=(id,), solved=int(solved)) for id, solved in episodes]
        credited, rewards = credit_group(self._resources.store, self._floor.reward, trees)
        rows: dict[str, list[Any]] = {
            name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        }
        for each in credited:
            (sample,) = samples_of(each.turns, each.advantage)
            start = sample.mask.index(True)
            rows["prompt_ids"].append(list(sample.ids[:start]))
            rows["completion_ids"].append(list(sample.ids[start:]))
            rows["logprobs"].append(list(sample.logprobs[start:]))
            rows["env_mask"].append([int(sampled) for sampled in sample.mask[start:]])
        for reward, (_, solved) in zip(rewards, episodes, strict=True):
            self._floor.note(reward, solved=solved)
        return rows | {"reward": list(rewards)}

    async def _session(self, task: Task, number: int) -> tuple[str, bool]:
        """Run and verify the session that our own reconciler would run in this place of this group."""
        seed = self._floor.config.seed
        for attempt in range(TRIES):
            id = sampling.session_id(seed, task.key, number, attempt)
            sampled = await self._work.sample(task, id, sampling.sampling_seed(seed, task.key, number))
            (episode,) = await self._work.verify(task, sampled)
            if episode.void is None:
                self._resources.store.record((), episode.signals())
                return id, episode.solved
        raise RuntimeError(f"{task.id} is void: {episode.void}")


def learner_alone(floor: Floor, rollouts: Rollouts) -> dict[str, Any]:
    """Return the arguments of the trainer in tier B. A prompt is the path of its task."""

    def sample(prompts: Sequence[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        weights = {k: v for k, v in trainer.model.state_dict().items() if k != "lm_head.weight"}
        with floor.clock.phase("sample"):
            return floor.loop.wait(rollouts.sample(prompts, trainer.state.global_step, weights))

    def given(reward: list[float], **_: object) -> list[float]:
        return reward

    return {
        "train_dataset": Dataset.from_dict({"prompt": list(floor.settings.tasks)}),
        "rollout_func": sample,
        "reward_funcs": given,
    }


def words_of(floor: Floor) -> PreTrainedTokenizerBase:
    """Return our tokenizer for transformers, whose template writes our tools byte for byte.

    TRL derives schemas from signatures, which cannot say all that ours do; the model was taught ours.
    """
    words = AutoTokenizer.from_pretrained(floor.settings.checkpoint, padding_side="left")
    shown = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in floor.shown.tools)
    assert TOOL_LOOP in CHAT_TEMPLATE and SAID_END in CHAT_TEMPLATE
    template = CHAT_TEMPLATE.replace(TOOL_LOOP, "    {{- " + repr(shown) + " }}\n")
    words.chat_template = template.replace(SAID_END, SAID_END_LATE)
    words.response_template = qwen3_template
    return words


def loss_scale(floor: Floor, completion: int) -> float:
    """Return TRL's loss over ours: the clip and Adam's epsilon are scaled by it, so that a step is the same.

    TRL divides by the longest completion where we divide by a constant, and a baseline that is the mean of
    the whole group makes the loss (1 - 1/G) times that of the mean of the others.
    """
    policy, size = floor.config.refine.policy, floor.config.practice.group_size
    scale = policy.tokens_per_session / completion
    return scale * (1 - 1 / size) if policy.baseline == "others" else scale


def grpo(floor: Floor, completion: int) -> GRPOConfig:
    """Return the settings that equal ours: the loss, the clip, the batch and the limits of a session."""
    config, settings = floor.config, floor.settings
    size, groups = config.practice.group_size, config.refine.groups
    return GRPOConfig(
        output_dir=settings.out,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.0,
        num_iterations=1,
        num_generations=size,
        per_device_train_batch_size=2 * size,
        gradient_accumulation_steps=groups // 2,
        max_steps=len(settings.tasks) // groups,
        max_tool_calling_iterations=config.harness.max_turns - 1,
        max_completion_length=completion,
        generation_kwargs={"max_new_tokens": config.harness.max_tokens},
        temperature=config.harness.temperature,
        max_grad_norm=config.refine.policy.largest_gradient * loss_scale(floor, completion),
        use_transformers_continuous_batching=settings.continuous,
        shuffle_dataset=False,
        seed=config.seed,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )


def optimizers(floor: Floor, model: Any, completion: int) -> tuple[AdamW, torch.optim.lr_scheduler.LambdaLR]:
    """Return our optimizer on TRL's model: two groups of weights, and a rate that rises over eight steps."""
    decoder, _, _ = load_checkpoint(floor.run.checkpoint(START))
    like = adamw(decoder, rate=0.0)
    of_embedding, _ = scales(like)
    rate = floor.config.refine.learning_rate
    embedding = model.get_input_embeddings().weight
    others = [each for each in model.parameters() if each is not embedding]
    groups = [{"params": [embedding], "lr": rate * of_embedding}, {"params": others, "lr": rate}]
    epsilon = like.defaults["eps"] * loss_scale(floor, completion)
    optimizer = AdamW(groups, betas=like.defaults["betas"], eps=epsilon, weight_decay=0.0, fused=True)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / RISE_STEPS))
    return optimizer, rise


class Marks(TrainerCallback):
    """Writes a line when training begins and after each step, and keeps weights."""

    def __init__(self, floor: Floor, model: Any) -> None:
        self._floor, self._model = floor, model
        self._out = Path(floor.settings.out)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter(), time.process_time()
        self._mark(0)

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step in self._floor.settings.keep:
            self._model.save_pretrained(self._out / str(state.global_step))
        self._mark(state.global_step)

    def _mark(self, version: int) -> None:
        floor = self._floor
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        spent = {name: list(each) for name, each in floor.clock.spent.items()}
        spent["learn"] = [
            wall - sum(each[0] for each in spent.values()),
            cpu - sum(each[1] for each in spent.values()),
        ]
        line = {"version": version, "spent": spent, "sessions": len(floor.rewards)}
        if floor.rewards:
            size = floor.config.practice.group_size * floor.config.refine.groups
            line["reward"] = sum(floor.rewards[-size:]) / size
            line["solved"] = sum(floor.solved[-size:]) / size
        with (self._out / "marks.jsonl").open("a") as marks:
            marks.write(json.dumps(line) + "\n")


def main(path: Path) -> None:
    floor = Floor(Settings(**json.loads(path.read_text())))
    torch.set_num_threads(floor.settings.threads)
    words = words_of(floor)
    model = AutoModelForCausalLM.from_pretrained(floor.settings.checkpoint, dtype=torch.float32)
    model.generation_config.eos_token_id = list(floor.renderer.stop_ids)
    prompts = [floor.messages(load_task(Path(each)).instruction) for each in floor.settings.tasks]
    longest = max(len(floor.renderer.render(each, floor.shown.tools)) for each in prompts)
    completion = floor.config.harness.max_context - longest
    rollouts = Rollouts(floor)
    if floor.settings.tier == "b":
        floor.loop.wait(rollouts.open())
    arguments = learner_alone(floor, rollouts) if floor.settings.tier == "b" else as_shipped(floor, words)
    trainer = TimedTrainer(
        model=model,
        args=grpo(floor, completion),
        processing_class=words,
        optimizers=optimizers(floor, model, completion),
        callbacks=[Marks(floor, model)],
        **arguments,
    )
    trainer.clock = floor.clock
    trainer.train()
    if floor.settings.tier == "b":
        floor.loop.wait(rollouts.aclose())


if __name__ == "__main__":
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    main(Path(sys.argv[1]))
