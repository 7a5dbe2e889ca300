"""The unit costs of a laptop's work, each measured by itself: what `benchmarks.plan` predicts runs from.

    python -m benchmarks.plan_units [--json] [--only engine start trainer weights session ray] [--shapes demo]

CPU seconds of this machine, of the very classes that a run uses. No run, and no stage of one, is measured.

| part | what |
|---|---|
| `engine` | a step of the embedded engine by the number of sequences, and a token of a prompt |
| `start` | a process that begins to serve, and the state of a trainer that is saved |
| `trainer` | a token forward and backward (eight rows behind a shared prompt), and the optimizer's step |
| `weights` | what the publisher and a reader of new weights take, every value changed |
| `session` | gateway, agent, sandbox and verdict of a session whose engine is a script |
| `ray` | three Ray nodes that stand idle, a client that joins them, and an actor on each; needs Ray |
"""

import argparse
import asyncio
import contextlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from fuzz.ray_nodes import three_nodes
from rich.console import Console

from benchmarks.engine import SHAPES, model
from benchmarks.measure import Cpu, Run, table
from ostinato import config as settings
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.scripted import ScriptedEngine, serve_scripted
from ostinato.loop.config import RunConfig
from ostinato.loop.folder import open_run
from ostinato.loop.resources import open_resources
from ostinato.loop.run import START
from ostinato.loop.run import Run as RunFolder
from ostinato.loop.show import Show
from ostinato.loop.stages.prepare import load_wire, prepare
from ostinato.loop.stages.problems import stream
from ostinato.loop.stages.teacher import Lessons, TeacherPolicy
from ostinato.store import Ledger, Objects
from ostinato.sync import Publisher, Subscriber
from ostinato.train.batch import ScoredRow, Scores
from ostinato.train.local import DecoderModel
from ostinato.types import TEACHER_VERSION, Arm, GenerateRequest, Sampling, Source

LENGTHS = {"demo": (100, 100, 30), "smollm2": (540, 60, 12)}
"""The tokens that all prompts share, those of each prompt, and the sampled tokens that are timed."""
BATCHES = {"demo": (1, 8, 32, 64), "smollm2": (1, 8, 32)}
GROUP = {"demo": (0, 140), "smollm2": (480, 280)}
"""The tokens of a training row: shared with its group, and its own."""
LESSONS = 24
JOINS = """
import sys, time, ray
ray.init(sys.argv[1], log_to_driver=False)
time.sleep(float(sys.argv[2]))
"""
"""A program that joins the cluster of this address, and leaves it after so many seconds."""


async def engine(shape: str) -> dict[str, float]:
    """Return CPU seconds: a decode step and its part for each sequence (least squares), a prompt's token."""
    config, (shared, own, sampled) = SHAPES[shape], LENGTHS[shape]
    rng, prefill, steps = random.Random(0), [], []

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(config.vocab_size) for _ in range(count))

    decoder = model(config)
    for batch in BATCHES[shape]:
        served = EmbeddedEngine(decoder, version=0, slots=64, max_len=shared + own + 64)
        start = ids(shared)
        for rounds in range(4):
            prompts = [start + ids(own) for _ in range(batch if rounds else 1)]

            async def sample(
                count: int, prompts: Sequence[tuple[int, ...]] = prompts, served: Any = served
            ) -> float:
                asked = [
                    GenerateRequest(
                        request_id=str(i),
                        session_id=str(i),
                        prompt_ids=prompt,
                        stop_ids=(),
                        max_tokens=count,
                        sampling=Sampling(seed=i),
                    )
                    for i, prompt in enumerate(prompts)
                ]
                began = time.process_time()
                await asyncio.gather(*(served.generate(each) for each in asked))
                return time.process_time() - began

            first = await sample(1)
            more = await sample(sampled)  # the prompts are known by now
            if rounds:
                prefill.append(first / (batch * own))
                steps.append((batch, more / sampled))
        await served.aclose()
    sizes = np.array([[1.0, batch] for batch, _ in steps])
    weights = np.array([1 / cost for _, cost in steps])
    fixed, each = np.linalg.lstsq(sizes * weights[:, None], np.ones(len(steps)), rcond=None)[0]
    return {
        "decode_step_s": float(fixed),
        "decode_token_s": float(each),
        "prefill_token_s": float(np.median(prefill)),
    }


def start(shape: str) -> dict[str, float]:
    """Return CPU seconds of a process that begins to serve: Python and torch, then the checkpoint, packed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import ostinato.engine.server"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        trained = DecoderModel(model(SHAPES[shape]), Path(folder))
        built = time.process_time() - began
        _loss_everywhere(trained.decoder)
        trained.optimizer.step()  # the moments exist from here on
        began = time.process_time()
        trained.save(0, {})
        saved = time.process_time() - began
    return {
        "start_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "load_s": built,
        "save_s": saved,
    }


def _loss_everywhere(decoder: torch.nn.Module) -> None:
    for each in decoder.parameters():
        each.grad = torch.ones_like(each)


def trainer(shape: str) -> dict[str, float]:
    """Return CPU seconds of a trained token, shared prompts counted once, and of the optimizer's step."""
    config, (shared, own) = SHAPES[shape], GROUP[shape]
    rng = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(config.vocab_size) for _ in range(count))

    prompt = ids(shared)
    rows = [
        ScoredRow(ids=prompt + ids(own), counted=(False,) * (shared + own // 2) + (True,) * (own - own // 2))
        for _ in range(8)
    ]
    passes, steps = [], []
    with tempfile.TemporaryDirectory() as folder:
        trained = DecoderModel(model(config), Path(folder), piece_tokens=3072)
        for _ in range(3):
            start = time.process_time()
            trained.accumulate(rows, _loss)
            passes.append(time.process_time() - start)
            start = time.process_time()
            trained.optimizer.step()
            trained.optimizer.zero_grad(set_to_none=True)
            steps.append(time.process_time() - start)
    tokens = shared + 8 * own
    return {"train_token_s": min(passes[1:]) / tokens, "optimizer_s": min(steps[1:])}


def _loss(_: Any, scores: Scores) -> torch.Tensor:
    return scores.logprobs_N.sum() / 100.0


def weights(shape: str) -> dict[str, float]:
    """Return CPU seconds of publishing and reading a version of which every value changed, and its bytes."""
    tensors = {name: each.detach().clone() for name, each in model(SHAPES[shape]).state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        objects = Objects.open(folder)
        publisher = Publisher(objects)
        publisher.anchor(0, tensors)
        reader = Subscriber(objects, like=tensors)
        reader.fetch(0)
        changed = {name: each + 1e-4 * torch.randn_like(each) for name, each in tensors.items()}
        start = time.process_time()
        manifest = publisher.delta(1, changed)
        published = time.process_time() - start
        start = time.process_time()
        reader.fetch(1)
        fetched = time.process_time() - start
    whole = sum(each.numel() * each.element_size() for each in tensors.values())
    return {
        "publish_s": published,
        "fetch_s": fetched,
        "delta_bytes": float(manifest.size),
        "weights_bytes": float(whole),
    }


async def session(lessons: int = LESSONS) -> dict[str, float]:
    """Return CPU seconds of everything but model and trainer, for each session and its turns."""
    run_config = settings.load(RunConfig, Path(__file__).parents[1] / "src/ostinato/demo/demo.toml")
    run_config = replace(run_config, teach=replace(run_config.teach, lessons=lessons))
    cpu = Cpu()
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(RunFolder(directory=Path(folder) / "run"), run_config, fresh=False).run
        await prepare(run_config, run)
        _, renderer = load_wire(run.checkpoint(START))
        policy = TeacherPolicy(renderer)
        async with open_resources(run_config, run, Show(Console(quiet=True))) as resources:
            site = await serve_scripted(ScriptedEngine(policy), secret=resources.services.secret)
            resources.put_arm(Arm(name="teacher", version=TEACHER_VERSION, share=0.0, engines=(site.url,)))
            runners = {"core": resources.runner(resources.client("teacher", "teacher"))}
            given = Lessons(runners, policy, Ledger(resources.store), run.tasks / "lessons", 4)
            problems = stream(run_config, "lessons")
            await given.give(lambda: next(problems), 4, 1, 0)  # warm
            before, sessions = spent(cpu), given.sessions
            await given.give(lambda: next(problems), lessons, 2, 0)
            parts, sessions = spent(cpu) - before, given.sessions - sessions
            turns = [
                resources.store.turns(each.id) for each in resources.store.sessions(source=Source.TEACHER)
            ]
            await site.close()
    cpu.leave()
    whole, agent, gateway = (float(part) / sessions for part in parts)
    return {
        "agent_s": agent,
        "gateway_s": gateway,
        "sandbox_s": whole - agent - gateway,
        "turns": sum(map(len, turns)) / len(turns),
    }


def ray_nodes(idle_s: float = 40.0, joined_s: float = 10.0) -> dict[str, float]:
    """Return what three nodes take of a core each, and CPU seconds of a run that joins and of each actor."""
    import ray

    from ostinato.loop.placement.nodes import NAMESPACE, KnownNodes

    cpu = Cpu()

    def spent_beside_idle(began: tuple[float, float]) -> float:
        return cpu.seconds() - began[0] - idle * (time.monotonic() - began[1])

    with three_nodes() as cluster, tempfile.TemporaryDirectory() as folder:
        time.sleep(joined_s)  # their agents still start
        before = cpu.seconds()
        time.sleep(idle_s)
        idle = (cpu.seconds() - before) / idle_s
        before_client = cpu.seconds(), time.monotonic()
        subprocess.run([sys.executable, "-c", JOINS, cluster.address, str(joined_s)], check=True)
        client = spent_beside_idle(before_client)
        ray.init(cluster.address, namespace=NAMESPACE, log_to_driver=False)
        nodes = KnownNodes(Path(folder), local_store=True)
        time.sleep(joined_s)
        before_actors = cpu.seconds(), time.monotonic()
        asyncio.run(nodes.meet(node["NodeID"] for node in ray.nodes()))
        actors = spent_beside_idle(before_actors)
        ray.shutdown()
    cpu.leave()
    return {"client_s": client, "actor_s": actors / 3, "node_share": idle / 3}


def spent(cpu: Cpu) -> "np.ndarray[Any, Any]":
    """Return CPU seconds so far: of all processes, of this one, and of the gateway."""
    return np.array([cpu.seconds(), time.process_time(), _of_child("ostinato.gateway.server")])


def _of_child(module: str) -> float:
    """Return the CPU seconds of the child process that runs `module`."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and module in (stat.parent / "cmdline").read_text():
                return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    raise RuntimeError(f"no child process runs {module}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_units", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="*", default=["engine", "start", "trainer", "weights", "session"])
    parser.add_argument("--shapes", nargs="*", default=["demo", "smollm2"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with Run("plan_units", "torch") as run:
        for shape in options.shapes:
            if "engine" in options.only:
                found |= {f"{shape}.{name}": value for name, value in asyncio.run(engine(shape)).items()}
            if "start" in options.only:
                found |= {f"{shape}.{name}": value for name, value in start(shape).items()}
            if "trainer" in options.only:
                found |= {f"{shape}.{name}": value for name, value in trainer(shape).items()}
            if "weights" in options.only:
                found |= {f"{shape}.{name}": value for name, value in weights(shape).items()}
        if "session" in options.only:
            found |= {f"laptop.{name}": value for name, value in asyncio.run(session()).items()}
        if "ray" in options.only:
            found |= {f"ray.{name}": value for name, value in ray_nodes().items()}
        table(["unit cost", "value"], [[name, f"{value:.6g}"] for name, value in found.items()])
        run.finish(found, as_json=options.json)


if __name__ == "__main__":
    main()
