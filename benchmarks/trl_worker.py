"""The peer of `benchmarks.trainer`: TRL's SFTTrainer with packing, run by the interpreter that has TRL.

`python trl_worker.py MODEL ROWS OUT TOKENS COMPUTE`: ROWS is a JSON list of rows of token ids. It computes on
the GPU where there is one, in float32 or bfloat16. Prints one JSON line.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer


class Clock(TrainerCallback):
    """The moments at which optimizer steps ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


def main(model: str, rows: Path, out: str, tokens: int, compute: str) -> None:
    torch.set_num_threads(1)
    clock = Clock()
    settings = SFTConfig(
        output_dir=out,
        packing=True,
        max_length=tokens,
        per_device_train_batch_size=1,
        num_train_epochs=1,
        gradient_checkpointing=False,
        learning_rate=1e-5,
        use_cpu=not torch.cuda.is_available(),
        bf16=compute == "bfloat16",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
    )
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        args=settings,
        train_dataset=Dataset.from_dict({"input_ids": json.loads(rows.read_text())}),
        processing_class=AutoTokenizer.from_pretrained(model),
        callbacks=[clock],
    )
    trainer.train()
    steps = len(clock.ends) - 1
    print(
        json.dumps(
            {
                "tokens_s": steps * tokens / (clock.ends[-1] - clock.ends[0]),
                "peak_mb": peak_mb(),
                "steps": steps,
            }
        )
    )


def peak_mb() -> float:
    """Return the most memory that was used: the GPU's where there is one."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
