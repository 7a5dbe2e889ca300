"""The directory of a model, which is named by that directory or by its repository on the hub."""

from pathlib import Path

from ostinato import extras


class ModelMissingError(ValueError):
    """The name is of no model that can be had here."""


def find_model(model: str, *, tokenizer_only: bool = False) -> Path:
    """Return the directory of a model, after a download when `model` names a repository on the hub.

    Raises ModelMissingError when it is neither, or the hub cannot be reached.
    """
    if Path(model).is_dir():
        return Path(model)
    looks_like_a_path = model.startswith((".", "/", "~")) or model.count("/") != 1
    if looks_like_a_path:
        raise ModelMissingError(
            f"{model} is neither a directory nor the name of a repository on the hub (OWNER/NAME)"
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise ModelMissingError(
            f"{model} is no directory, and {extras.sentence('huggingface_hub', 'the hub')}"
        ) from error
    texts = ["*.json", "*.jinja"]
    try:
        return Path(
            snapshot_download(model, allow_patterns=texts if tokenizer_only else [*texts, "*.safetensors"])
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ModelMissingError(
            f"{model} is no directory here, and the hub does not give it ({type(error).__name__}): name a "
            "directory in Hugging Face layout"
        ) from error
