"""The peer of `benchmarks.trainer`: TRL's SFTTrainer with packing, run by the interpreter that has TRL.

`python trl_worker.py MODEL ROWS OUT TOKENS`: ROWS is a JSON list of rows of token ids. Prints one JSON line.
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
        self.ends.append(time.perf_counter())


def main(model: str, rows: Path, out: str, tokens: int) -> None:
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
        use_cpu=True,
        bf16=False,
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
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "steps": steps,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
