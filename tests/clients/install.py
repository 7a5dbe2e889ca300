"""The real clients, each in an environment of its own below `.clients`, installed once by name."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.clients.alone import execute_alone
from tests.provision import environment
from tests.provision import install as packages

ROOT = Path(__file__).parents[2] / ".clients"
PATIENCE_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package of one registry, at the version the tests were written for."""

    registry: str
    """pip or npm."""
    name: str
    version: str
    program: str
    beside: tuple[str, ...] = ()
    """Packages that it imports but does not require."""

    @property
    def home(self) -> Path:
        return ROOT / self.name.rpartition("/")[2]

    @property
    def executable(self) -> Path:
        inner = "bin" if self.registry == "pip" else "node_modules/.bin"
        return self.home / inner / self.program

    @property
    def missing(self) -> str | None:
        """Return the reason why it cannot be used, None when it can."""
        report = self.home / "installed.json"
        if not report.exists():
            return f"{self.name} is not installed: run `make test-clients`"
        found = json.loads(report.read_text())
        if found["version"] != self.version:
            return f"{self.name} is installed in version {found['version']}: run `make test-clients`"
        return found["problem"]


PACKAGES = {
    package.name: package
    for package in (
        Package(
            registry="pip", name="mini-swe-agent", version="2.4.6", program="mini", beside=("mcp==2.3.0",)
        ),
        Package(registry="pip", name="aider-chat", version="0.86.2", program="aider"),
        Package(
            registry="pip",
            name="skyrl",
            version="0.3.0",
            program="trl",  # what test_trainers.py has read an export: SkyRL, TRL, and prime-rl's renderers
            beside=(
                "trl==1.16.0",
                "torch==2.13.0",
                "renderers==0.1.12",
                "jaxtyping==0.3.11",
                "loguru==0.7.3",
            ),
        ),
        Package(registry="npm", name="@anthropic-ai/claude-code", version="2.1.197", program="claude"),
        Package(registry="npm", name="@openai/codex", version="0.169.0", program="codex"),
        Package(registry="npm", name="opencode-ai", version="1.18.33", program="opencode"),
        Package(registry="npm", name="@mariozechner/pi-coding-agent", version="0.73.1", program="pi"),
        Package(registry="npm", name="@qwen-code/qwen-code", version="0.15.10", program="qwen"),
        Package(registry="npm", name="@continuedev/cli", version="1.5.47", program="cn"),
        Package(registry="npm", name="cline", version="3.0.65", program="cline"),
    )
}


def install(package: Package) -> str | None:
    """Install a package if that was not done before; return the problem, None when there was none."""
    if package.missing is None:
        return None
    shutil.rmtree(package.home, ignore_errors=True)
    problem = _pip(package) if package.registry == "pip" else _npm(package)
    report = {"version": package.version, "problem": problem}
    package.home.mkdir(parents=True, exist_ok=True)
    (package.home / "installed.json").write_text(json.dumps(report))
    return problem


def _pip(package: Package) -> str | None:
    python, wanted = environment(package.home), [f"{package.name}=={package.version}", *package.beside]
    try:
        packages(python, *wanted, quiet=True)
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(map(str, error.cmd))}` failed"
    return None


def _npm(package: Package) -> str | None:
    if shutil.which("npm") is None:
        return f"{package.name} needs npm, which is not on PATH"
    command = ["npm", "install", "--prefix", str(package.home), "--no-audit", "--no-fund"]
    return _run([*command, f"{package.name}@{package.version}"])


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` took longer than {PATIENCE_S} s"
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return f"`{' '.join(command)}` failed: {' '.join(last)[:300]}"


def main(arguments: list[str]) -> int:
    """Install what is missing, then run the tests where there is nothing but loopback.

    `--only PACKAGE` in front of pytest's arguments installs one of the packages. Return 1 when a client
    cannot be installed: a test that was skipped shows nothing.
    """
    wanted = [*PACKAGES]
    if arguments[:1] == ["--only"]:
        wanted, arguments = arguments[1:2], arguments[2:]
    problems = {name: install(PACKAGES[name]) for name in wanted}
    for name, problem in problems.items():
        print(f"{name} {PACKAGES[name].version}: {problem or 'installed'}", flush=True)
    if not any(problems.values()):
        # Without namespaces the tests say why they are skipped.
        tests = arguments or ["tests/clients"]
        execute_alone([sys.executable, "-m", "pytest", "-m", "clients", *tests])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
