"""vLLM as a process that samples what it is told; it runs with the Python of vLLM's environment.

    python vllm_peer.py MODEL MAX_LEN SLOTS

Each line on stdin, `{"prompts": [[id, …], …], "tokens": n}`, is answered by one on stdout, `{"tokens": n,
"wall_s": s}`. It is vLLM's own engine without a server before it, so nothing is lost on HTTP.
"""

import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever vLLM prints is no answer


def main() -> None:
    from vllm import LLM, SamplingParams

    model, max_len, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Compiled, not eager, as vLLM does by default.
    llm = LLM(model, dtype="float32", max_model_len=max_len, max_num_seqs=slots, disable_log_stats=True)
    for line in sys.stdin:
        asked = json.loads(line)
        rows = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
        settings = SamplingParams(max_tokens=asked["tokens"], ignore_eos=True, detokenize=False, logprobs=0)
        started = time.perf_counter()
        done = llm.generate(rows, settings, use_tqdm=False)
        spent = time.perf_counter() - started
        tokens = sum(len(each.outputs[0].token_ids) for each in done)
        answers.write(json.dumps({"tokens": tokens, "wall_s": spent}) + "\n")


if __name__ == "__main__":  # vLLM starts its workers by importing this file again
    main()
