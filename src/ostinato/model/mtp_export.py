"""A draft for vLLM: the MTP layer as one of GLM-4.5, which vLLM 0.32 loads beside a model of another family.

Of the families whose MTP layers it knows, GLM-4.5's has attention as Llama, Qwen2 and Qwen3 have it
and norms where ours are. Its MLP is a mixture of experts with one that every token goes through: a dense MLP
goes out as that one, beside two small experts of zeros. The model's tables stand in the file a second
time, as they do in public checkpoints.
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.model.checkpoint import load
from ostinato.model.config import ModelConfig
from ostinato.model.mtp import Mtp, load_draft
from ostinato.model.tensor_files import CONFIG, CheckpointError, copy_companions, read_json, write_tensors

EXPERTS, PARTS = 2, 8
"""The experts of zeros, of whose scores vLLM adds the best two, and the width of an MLP in that of one."""
FAMILY = {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"]}
GLM = {
    "num_nextn_predict_layers": 1,
    "first_k_dense_replace": 0,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 1,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "partial_rotary_factor": 1.0,
}


def export_draft(checkpoint: Path, out: Path) -> int:
    """Write the draft of a checkpoint as the folder `out`, whole or not at all; return its bytes.

    Raises CheckpointError for a checkpoint without one, and for a mixture of experts, which GLM-4.5 weighs by
    sigmoids.
    """
    if out.exists():
        raise CheckpointError(f"{out} exists already: name another folder")
    decoder, tokenizer, _ = load(checkpoint)
    config = decoder.config
    if config.experts:
        raise CheckpointError(
            f"{checkpoint}: other engines weigh {config.experts} experts of an MTP layer otherwise: serve "
            "it with the embedded engine"
        )
    mtp = load_draft(checkpoint, config, tokenizer=tokenizer.digest)
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    copy_companions(checkpoint, part)
    (part / CONFIG).write_text(json.dumps(glm_fields(config), indent=2) + "\n")
    tables = {"embed_tokens": decoder.embedding, "shared_head.head": decoder.unembedding}
    own = ((f"{config.draft_prefix}{name}.weight", table.detach()) for name, table in tables.items())
    write_tensors(part, [*glm_tensors(mtp), *own])
    part.rename(out)
    return sum(file.stat().st_size for file in out.iterdir())


def vllm_arguments(checkpoint: Path, draft: Path, tokens: int) -> list[str]:
    """Return the arguments with which vLLM drafts so many tokens for a checkpoint by its exported draft.

    vLLM 0.32 reads the shape of such a layer from the settings of the model, which therefore get its fields.
    """
    own = read_json(checkpoint / CONFIG)
    fields = read_json(draft / CONFIG)
    more = {name: fields[name] for name in fields if name not in FAMILY and own.get(name) != fields[name]}
    speculation = {"method": "mtp", "model": str(draft), "num_speculative_tokens": tokens}
    return [f"--hf-overrides={json.dumps(more)}", f"--speculative-config={json.dumps(speculation)}"]


def glm_fields(config: ModelConfig) -> Mapping[str, Any]:
    """Return the `config.json` of the layer of a dense model of this shape."""
    fields, parts = config.to_hf(), math.gcd(config.intermediate_size, PARTS)
    return fields | FAMILY | GLM | {
        "n_shared_experts": parts,
        "moe_intermediate_size": config.intermediate_size // parts,
        "use_qk_norm": config.qk_norm,
        "attention_bias": config.attention_bias,
        "rope_parameters": fields["rope_parameters"] | {"partial_rotary_factor": 1.0},
    }  # fmt: skip


def glm_tensors(mtp: Mtp) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of the layer by the names of GLM-4.5's, without the model's tables."""
    config, start = mtp.config, f"{mtp.config.draft_prefix}mlp."
    for name, tensor in mtp.state_dict().items():
        yield name.replace(start, f"{start}shared_experts."), tensor
    width, hidden = glm_fields(config)["moe_intermediate_size"], config.hidden_size
    yield f"{start}gate.weight", torch.zeros(EXPERTS, hidden)
    yield f"{start}gate.e_score_correction_bias", torch.zeros(EXPERTS)
    for expert in range(EXPERTS):
        for part in ("gate", "up"):
            yield f"{start}experts.{expert}.{part}_proj.weight", torch.zeros(width, hidden)
        yield f"{start}experts.{expert}.down_proj.weight", torch.zeros(hidden, width)
