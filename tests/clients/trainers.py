"""What other trainers read of an export: `trainers.py TOKENS CHAT MODEL`, by the interpreter that has them.

TRL trains a small random model on each row of both forms, SkyRL makes its tensors of the token rows, and the
renderers of prime-rl's fine-tuning render the chat rows. Prints one JSON line of what reached them.
"""

import json
import sys
from tempfile import mkdtemp
from typing import Any

import torch
from datasets import Dataset, load_dataset
from renderers import DefaultRendererConfig, build_training_sample, create_renderer
from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig, SFTTrainer


class Seen(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, which keeps each batch, its loss, and the loss that the same weights have by hand."""

    def compute_loss(self, model: Any, inputs: Any, *words: Any, **more: Any) -> Any:
        ids, labels = inputs["input_ids"], inputs["labels"]
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1]
        by_hand = torch.nn.functional.cross_entropy(logits, labels[0, 1:])
        found = super().compute_loss(model, inputs, *words, **more)
        loss = found[0] if isinstance(found, tuple) else found
        self.batches.append(
            {
                "ids": ids[0].tolist(),
                "labels": labels[0].tolist(),
                "loss": loss.item(),
                "ours": by_hand.item(),
            }
        )
        return found


def trl(rows: Dataset, words: Any) -> list[dict[str, Any]]:
    """Return the batches on which TRL trains for one epoch."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    settings = SFTConfig(
        output_dir=mkdtemp(), per_device_train_batch_size=1, num_train_epochs=1, max_length=None,
        gradient_checkpointing=False, bf16=False, use_cpu=True, report_to=[], save_strategy="no",
    )  # fmt: skip
    trainer = Seen(model=LlamaForCausalLM(shape), args=settings, train_dataset=rows, processing_class=words)
    trainer.batches = []
    trainer.train()
    return list(trainer.batches)


def skyrl(rows: Dataset, words: Any) -> dict[str, Any]:
    """Return SkyRL's tensors of prompts and responses: a prompt ends where the first token was sampled."""
    starts = [row["loss_mask"].index(1) for row in rows]
    cut = {
        name: [row[name][at:] for row, at in zip(rows, starts, strict=True)]
        for name in ("input_ids", "loss_mask", "logprobs")
    }
    sequences, attention, response, rewards, mask, logprobs, _ = convert_prompts_responses_to_batch_tensors(
        words,
        prompts=[row["input_ids"][:at] for row, at in zip(rows, starts, strict=True)],
        responses=cut["input_ids"],
        rewards=[
            [0.0] * (len(ids) - 1) + [row["reward"]] for row, ids in zip(rows, cut["input_ids"], strict=True)
        ],
        loss_masks=cut["loss_mask"],
        logprobs=cut["logprobs"],
    )
    ids = sequences[:, -mask.shape[1] :]
    return {
        "whole": [row[keep.bool()].tolist() for row, keep in zip(sequences, attention, strict=True)],
        "learnt": [row[keep.bool()].tolist() for row, keep in zip(ids, mask, strict=True)],
        "logprobs": [row[keep.bool()].tolist() for row, keep in zip(logprobs, mask, strict=True)],
        "reward": rewards.sum(dim=1).tolist(),
        "shown": int(response.sum()),
    }


def prime_rl(row: dict[str, Any], words: Any) -> list[int]:
    """Return the ids to which prime-rl's fine-tuning renders a chat row; it decodes arguments first."""
    messages = [{key: value for key, value in each.items() if value is not None} for each in row["messages"]]
    for call in (call for each in messages for call in each.get("tool_calls", ())):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    sample = build_training_sample(
        create_renderer(words, DefaultRendererConfig()),
        messages,
        role_to_mask=lambda message: message["role"] == "assistant",
        tools=json.loads(row["tools"]),
        ensure_final_stop=True,
    )
    return list(sample.token_ids)


def main(tokens: str, chat: str, model: str) -> None:
    words = AutoTokenizer.from_pretrained(model)
    rows, said = (load_dataset(each, split="train", cache_dir=mkdtemp()) for each in (tokens, chat))
    told = {
        "trl_tokens": trl(rows, words),
        "trl_chat": trl(said, words),
        "skyrl": skyrl(rows, words),
        "prime_rl": [prime_rl(row, words) for row in said],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
