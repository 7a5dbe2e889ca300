"""The extension of a checkpoint to more positions, by its config.json: any family of rotary positions.

The weights stay; only what positions mean is changed, so that the phase that follows learns to use them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ostinato.model.config import Yarn
from ostinato.model.tensor_files import CONFIG, TensorFiles, copy_companions, read_json
from ostinato.train.base import StateError
from ostinato.train.pretrain.config import PretrainPhase


def extended(fields: Mapping[str, Any], phase: PretrainPhase) -> dict[str, Any]:
    """Return the content of a config.json whose model has the positions that `phase` needs.

    Raises StateError for a family that cannot be extended so, and for rows that are too long as it is.
    """
    positions, kind = fields.get("max_position_embeddings"), fields.get("model_type")
    if not isinstance(positions, int):
        raise StateError(f"a {kind} does not say how many positions it has: it cannot be pretrained here")
    if phase.rope == "kept":
        if phase.length > positions:
            raise StateError(
                f"rows of {phase.length} tokens, and the {kind} has {positions} positions: shorten them, or "
                'extend it by rope = "base" or "yarn"'
            )
        return dict(fields)
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    theta = rope.get("rope_theta") or fields.get("rope_theta")
    if any(isinstance(value, Mapping) for value in rope.values()):
        raise StateError(f"the layers of a {kind} have rotary positions of several kinds: rope must be kept")
    if not theta:
        raise StateError(f"a {kind} has no rotary positions that could be stretched: rope must be kept")
    if (known := rope.get("rope_type") or rope.get("type") or "default") != "default":
        raise StateError(
            f"the rotary positions of this {kind} are stretched already, by {known}: extend the "
            "checkpoint that it was made from"
        )
    if phase.rope == "base":
        return _with_rope(fields, {"rope_type": "default"}, phase.rope_base, max(positions, phase.length))
    if phase.length <= positions:
        raise StateError(f"yarn stretches {positions} positions to more, not to {phase.length}")
    yarn = Yarn(factor=phase.length / positions, original_positions=positions)
    return _with_rope(fields, yarn.to_hf(), float(theta), phase.length)


def _with_rope(
    fields: Mapping[str, Any], scaling: Mapping[str, Any], theta: float, positions: int
) -> dict[str, Any]:
    """Return the fields with rotary positions as transformers writes them since 5, and before."""
    changed: dict[str, Any] = {"max_position_embeddings": positions, "rope_theta": theta}
    changed["rope_parameters"] = {**scaling, "rope_theta": theta}
    changed["rope_scaling"] = None if scaling["rope_type"] == "default" else dict(scaling)
    return {**fields, **changed}


def write_extended(start: Path, phase: PretrainPhase, directory: Path) -> None:
    """Make `directory` the checkpoint `start` with the positions of `phase`; its weights are links.

    Raises StateError, CheckpointError.
    """
    fields = extended(read_json(start / CONFIG), phase)
    copy_companions(start, directory)
    (directory / CONFIG).write_text(json.dumps(fields, indent=2) + "\n")
    for path in (*TensorFiles.open(start).files, *start.glob("*.safetensors.index.json")):
        link = directory / path.name
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())
