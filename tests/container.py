"""Build the image of `Containerfile` with podman, and let it serve: `make container`.

The image stands on a Debian that `mmdebstrap` makes of this machine's own mirrors, so that no registry is
asked; pip in the build is told what pip is told here. Where podman or mmdebstrap is missing, the reason is
printed and nothing is tried.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE, IMAGE = "localhost/ostinato-base", "localhost/ostinato"
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
PACKAGES = "python3-venv,git,ca-certificates"
MIRRORS = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")


def main() -> int:
    if missing := [name for name in ("podman", "mmdebstrap") if not shutil.which(name)]:
        print(f"container: not built, {' and '.join(missing)} are not installed")
        return 0
    if not list((ROOT / "dist").glob("ostinato-*.whl")):
        print("container: there is no wheel in dist/: run `make wheel`", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ostinato-container-") as place:
        try:
            make_base(Path(place))
            build(Path(place))
            check()
        except subprocess.CalledProcessError as error:
            print(f"container: {error}", file=sys.stderr)
            return 1
    print(f"container: {IMAGE} is built of the wheel, and its commands start")
    return 0


def make_base(place: Path) -> None:
    if subprocess.run(["podman", "image", "exists", BASE], check=False).returncode == 0:
        return
    release = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    mirrors = [path for path in map(Path, MIRRORS) if path.exists()][:1]
    tree = place / "base.tar"
    options = ("--quiet", "--variant=minbase", f"--include={PACKAGES}")
    run("mmdebstrap", *options, release[1] if release else "stable", str(tree), *map(str, mirrors))
    run("podman", "import", "--quiet", str(tree), BASE)


def build(place: Path) -> None:
    """Build the image; what pip is told here is told to pip there."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    settings = dict(re.findall(r"^\S+?\.([\w-]+)='(.*)'$", told, re.MULTILINE))
    file = place / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    volumes = [f"{file}:/etc/pip.conf:ro", *(f"{folder}:{folder}:ro" for folder in folders(settings))]
    mounts = [word for volume in volumes for word in ("--volume", volume)]
    words = ("--network", "host", "--build-arg", f"BASE={BASE}", "--tag", IMAGE)
    run("podman", "build", "--quiet", *LIMITS, *mounts, *words, "--file", "Containerfile", str(ROOT))


def folders(settings: dict[str, str]) -> Iterator[str]:
    """Yield the folders and files of this machine that pip is told of; an index has its files beside it."""
    for value in settings.values():
        for word in value.replace("file://", "").split():
            path = Path(word)
            if path.is_absolute() and path.exists():
                yield str(path.parent if path.name == "simple" else path)


def check() -> None:
    """Raise CalledProcessError unless the commands of the image start, and it has what it names."""
    for words in (("--version",), ("doctor",), ("team", "init", "--help")):
        run("podman", "run", "--rm", *LIMITS, IMAGE, *words)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
