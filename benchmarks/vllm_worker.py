"""A process that samples with vLLM's own engine; it runs with the Python of vLLM's environment.

    python vllm_worker.py MODEL MAX_LEN SLOTS [eager]

For each line on stdin, `{"prompts": [[id, …], …], "tokens": n}`, it prints one on stdout, `{"tokens": n,
"wall_s": s}`. There is no server before the engine, so no time is lost on HTTP.
"""

import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # vLLM prints to stdout, which is for results only


def main() -> None:
    from vllm import LLM, SamplingParams

    model, max_len, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Compiled, as vLLM does by default, unless told otherwise: compiling a real model takes minutes.
    llm = LLM(
        model,
        dtype="float32",
        max_model_len=max_len,
        max_num_seqs=slots,
        disable_log_stats=True,
        enforce_eager="eager" in sys.argv[4:],
    )
    for line in sys.stdin:
        request = json.loads(line)
        rows = [{"prompt_token_ids": ids} for ids in request["prompts"]]
        settings = SamplingParams(max_tokens=request["tokens"], ignore_eos=True, detokenize=False, logprobs=0)
        started = time.perf_counter()
        done = llm.generate(rows, settings, use_tqdm=False)
        spent = time.perf_counter() - started
        tokens = sum(len(each.outputs[0].token_ids) for each in done)
        answers.write(json.dumps({"tokens": tokens, "wall_s": spent}) + "\n")


if __name__ == "__main__":  # vLLM imports this file again in its workers
    main()
