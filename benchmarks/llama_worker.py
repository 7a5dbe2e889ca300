"""A process that samples with llama.cpp's own server, called in this process; it runs where `xllamacpp` is.

    python llama_worker.py MODEL.gguf MAX_LEN SLOTS

It reads and writes the lines of `vllm_worker.py`.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # llama.cpp prints to stdout, which is for results only


def main() -> None:
    import xllamacpp

    model, max_len, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.n_parallel = slots
    settings.n_ctx = max_len * slots
    settings.warmup = False
    settings.n_gpu_layers = 0
    settings.verbosity = -1
    server = xllamacpp.Server(settings)

    def sample(ids: list[int], tokens: int) -> int:
        asked = {
            "prompt": ids,
            "n_predict": tokens,
            "ignore_eos": True,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "cache_prompt": False,
            "return_tokens": True,
        }
        done = server.handle_completions(asked)
        done = json.loads(done) if isinstance(done, str) else done
        return int(done["usage"]["completion_tokens"] if "usage" in done else done["tokens_predicted"])

    with ThreadPoolExecutor(slots) as pool:
        for line in sys.stdin:
            request = json.loads(line)
            started = time.perf_counter()
            counts = pool.map(lambda ids, n=request["tokens"]: sample(ids, n), request["prompts"])
            tokens = sum(counts)
            spent = time.perf_counter() - started
            answers.write(json.dumps({"tokens": tokens, "wall_s": spent}) + "\n")


if __name__ == "__main__":
    main()
