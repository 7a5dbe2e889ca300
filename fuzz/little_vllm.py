"""A little vLLM: its routes over real HTTP, before engines of this process with real weights.

It serves a checkpoint, loads adapters of peft's files at run time, and takes whole weights as vLLM's workers
do. `restart` makes it what it was when it was started.

    python -m fuzz.little_vllm CHECKPOINT CONTEXT PORT
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from safetensors.torch import load_file
from torch import Tensor

from ostinato.engine.base import Token
from ostinato.engine.embedded.engine import EmbeddedEngine
from ostinato.engine.http import serve
from ostinato.engine.vllm.handover import digest, read
from ostinato.model.checkpoint import load
from ostinato.model.decoder import Decoder
from ostinato.types import GenerateRequest, Sampling

NAME = "little"
SAMPLING = ("top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
Weights = dict[str, Tensor]


class LittleVllm:
    """The server's state; tests change it as somebody at the engine would."""

    def __init__(self, checkpoint: Path, context: int, *, dev_mode: bool = False) -> None:
        decoder, self.tokenizer, _ = load(checkpoint)
        self.config, self.context, self.dev_mode = decoder.config, context, dev_mode
        self.start = decoder.state_dict()
        self.roots: dict[str, str] = {}
        self.served: dict[str, EmbeddedEngine] = {}
        self.weights: dict[str, Weights] = {}
        self.asked: list[str] = []
        """The model of each request for tokens."""
        self.loads, self.url, self.root = 0, "", str(checkpoint)
        self.load_adapters, self.scale = True, 1.0
        self.put(NAME, self.start)

    def put(self, name: str, weights: Weights) -> None:
        decoder = Decoder(self.config, initialise=False)
        decoder.load_state_dict(weights)
        self.weights[name] = weights
        self.served[name] = EmbeddedEngine(decoder, version=0, slots=16, max_len=self.context)

    def restart(self) -> None:
        self.roots, self.served, self.weights = {}, {}, {}
        self.put(NAME, self.start)

    def adapted(self, folder: Path) -> Weights:
        settings = json.loads((folder / "adapter_config.json").read_text())
        parts, weights = load_file(folder / "adapter_model.safetensors"), dict(self.start)
        for name, low in parts.items():
            if name.endswith("lora_A.weight"):
                high = parts[name.replace("lora_A", "lora_B")]
                assert low.shape[0] == high.shape[1] == settings["r"]
                own = name.removeprefix("base_model.model.").replace("lora_A.", "")
                weights[own] = weights[own] + self.scale * settings["lora_alpha"] / settings["r"] * (
                    high @ low
                )
        return weights

    async def models(self, _: web.Request) -> web.Response:
        cards: list[dict[str, Any]] = [{"id": NAME, "max_model_len": self.context, "root": self.root}]
        cards += [{"id": name, "root": root, "parent": NAME} for name, root in self.roots.items()]
        return web.json_response({"data": cards})

    async def load_adapter(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        if not self.load_adapters or name in self.roots:
            why = "has already been loaded" if name in self.roots else "LoRA is not enabled"
            return web.json_response({"error": {"message": why}}, status=400)
        self.put(name, self.adapted(Path(path)))
        self.roots[name], self.loads = path, self.loads + 1
        return web.Response(text="Success")

    async def routes(self, _: web.Request) -> web.Response:
        more = ("/pause", "/resume", "/collective_rpc") if self.dev_mode else ()
        return web.json_response({"paths": {path: {} for path in ("/v1/models", *more)}})

    async def rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        folder = Path(body["args"][0])
        if body["method"] == "version_check":
            return web.json_response({"results": [{"digest": digest(folder)}]})
        self.put(NAME, {**self.start, **dict(read(folder))})
        self.loads += 1
        return web.json_response({"results": [{"loaded": str(folder)}]})

    async def nothing(self, _: web.Request) -> web.Response:
        return web.json_response({})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if (name := body["model"]) not in self.served:
            return web.json_response(
                {"error": {"message": f"The model `{name}` does not exist."}}, status=404
            )
        prompt = body["prompt"]
        ids = prompt if isinstance(prompt, list) else self.tokenizer.encode(prompt)
        if not body["stream"]:
            return web.json_response({"choices": [{"prompt_logprobs": self.scores(name, ids)}]})
        self.asked.append(name)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for choice in self.choices(name, ids, body):
            await response.write(f"data: {json.dumps({'model': name, 'choices': [choice]})}\n\n".encode())
        return response

    def logprobs(self, name: str, ids: list[int], temperature: float = 1.0) -> Tensor:
        decoder = Decoder(self.config, initialise=False)
        decoder.load_state_dict(self.weights[name])
        with torch.no_grad():
            return torch.log_softmax(decoder(torch.tensor([ids]))[0][0] / temperature, -1)

    def scores(self, name: str, ids: list[int]) -> list[dict[str, Any] | None]:
        rows = self.logprobs(name, ids)
        return [None, *({str(i): {"logprob": float(row[i])}} for row, i in zip(rows, ids[1:], strict=False))]

    async def choices(self, name: str, ids: list[int], body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        temperature = body["temperature"]
        sampling = {key: body[key] for key in SAMPLING}
        asked = GenerateRequest(
            request_id="r",
            session_id="s",
            prompt_ids=tuple(ids),
            stop_ids=tuple(body["stop_token_ids"]),
            max_tokens=body["max_tokens"],
            sampling=Sampling(temperature=temperature, seed=body["seed"], **sampling),
        )
        top = {}
        if body["logprobs"]:
            best = self.logprobs(name, ids, temperature)[-1].topk(body["logprobs"])
            top = {str(i): float(v) for v, i in zip(*best, strict=True)}
        first = {"prompt_token_ids": ids}
        async for event in self.served[name].stream(asked):
            if isinstance(event, Token):
                scores = {"token_logprobs": [event.logprob], "top_logprobs": [top]}
                text = self.tokenizer.decode([event.id])
                yield {"text": text, "token_ids": [event.id], "logprobs": scores, **first}
                first = {}
            else:
                yield {"text": "", "finish_reason": event.finish.value}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/openapi.json", self.routes)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/load_lora_adapter", self.load_adapter)
        if self.dev_mode:
            app.router.add_post("/collective_rpc", self.rpc)
            app.router.add_post("/pause", self.nothing)
            app.router.add_post("/resume", self.nothing)
        return app


@asynccontextmanager
async def little_vllm(
    checkpoint: Path, context: int = 128, *, dev_mode: bool = False, port: int = 0
) -> AsyncIterator[tuple[str, LittleVllm]]:
    """Serve it; yield its URL and its state."""
    little = LittleVllm(checkpoint, context, dev_mode=dev_mode)
    running = await serve(little.app(), "127.0.0.1", port)
    little.url = running.url
    try:
        yield running.url, little
    finally:
        await running.close()


async def _main(checkpoint: str, context: str, port: str) -> None:
    async with little_vllm(Path(checkpoint), int(context), port=int(port)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
