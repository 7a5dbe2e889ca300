"""The packages that only some work needs: which extra of ostinato brings one, and how it is installed here.

A package that is missing never makes anything weaker or quieter: what needs it says so in one sentence and
does not begin.
"""

import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from json import loads
from urllib.parse import urlsplit
from urllib.request import url2pathname

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
}
"""The extra that brings each module which the core does without."""


class MissingPackageError(RuntimeError):
    """A package is not installed; the message names it and says how it is installed."""


def need(module: str, what: str) -> None:
    """Raise MissingPackageError where `module` is missing; `what` says what needs it, as "the dashboard"."""
    if find_spec(module) is None:
        raise MissingPackageError(sentence(module, what))


def sentence(module: str, what: str) -> str:
    """Return the sentence about a missing module, for people."""
    return f"{what} needs the package {module.lstrip('_')}, which is not installed: {install(EXTRAS[module])}"


def missing(error: ImportError) -> str | None:
    """Return the package of an extra that an import failed for; None when it failed for another reason.

    >>> missing(ModuleNotFoundError("No module named 'torch.cuda'", name="torch.cuda"))
    'torch'
    """
    name = (error.name or "").partition(".")[0]
    return name if isinstance(error, ModuleNotFoundError) and name in EXTRAS else None


def install(*extras: str) -> str:
    """Return the command that adds extras to this installation: to a clone, a wheel, or what an index has.

    How ostinato was installed stands in `direct_url.json` (PEP 610), which an index does not leave behind.
    """
    wanted = f"[{','.join(extras)}]"
    try:
        recorded = loads(distribution("ostinato").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a path to the sources, without an installation
        recorded = {}
    url = urlsplit(recorded.get("url", ""))
    if url.scheme == "file":
        editable = "-e " if recorded.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}{shlex.quote(url2pathname(url.path) + wanted)}"
    at = f" @ {recorded['url']}" if url.scheme else ""
    return f"pip install {shlex.quote(f'ostinato{wanted}{at}')}"
