"""A template in a store: built once, found again by its digest, checked when it is used."""

import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ostinato.sandbox.base import Limits, Mount, SandboxError, Spec
from ostinato.sandbox.environment import scrub, toolchain, wheels
from ostinato.sandbox.files import tree

FORMAT = 1
DEPS = "/mnt/deps"
_ABOUT = "template.json"
_DATE = "2026-01-01T00:00:00+0000"
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "ostinato"), ("EMAIL", "ostinato@localhost"), ("DATE", _DATE))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A built environment.

    >>> Template(path=Path("/srv/templates/9f"), digest="9f", commit="4b", needs=(), lock={}).spec().repo.name
    'repo'
    """

    path: Path
    digest: str
    """Of files, dependencies and needs: names it in the store."""
    commit: str
    """The only one of its repository."""
    needs: tuple[str, ...]
    lock: wheels.Lock

    def spec(self, limits: Limits | None = None) -> Spec:
        """What a sandbox of it starts from: the dependencies beside the repository, read-only."""
        mounts = (Mount(source=self.path / "deps", target=DEPS),) if self.lock else ()
        environment = {"PYTHONPATH": DEPS} if self.lock else {}
        return Spec(
            repo=self.path / "repo", limits=limits or Limits(), mounts=mounts, environment=environment
        )


def build(
    source: Path, store: Path, *, commit: str | None = None, wheelhouse: Path | None = None
) -> Template:
    """From a Harbor task directory, or a repository (at `commit`), with the wheels of `wheelhouse`.

    An equal one in the store is used again. Raises SandboxError for what is missing; the store is as before.
    """
    repo = source / "environment" / "repo"
    programs = toolchain.needs(source) if repo.is_dir() else ()
    toolchain.check(programs, source)
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=".part-") as scratch:
        made = Path(scratch, "template")
        scrub.checkout(repo if repo.is_dir() else source, commit, made / "repo")
        lock = wheels.lock_of(wheelhouse) if wheelhouse is not None else {}
        if wheelhouse is not None:
            wheels.install(lock, wheelhouse, made / "deps")
        about = {"format": FORMAT, "commit": _commit(made / "repo"), "needs": programs, "lock": lock}
        digest = _digest(made, about)
        (made / _ABOUT).write_text(json.dumps({**about, "digest": digest}, indent=1, sort_keys=True) + "\n")
        _publish(made, store / digest)
    return load(store / digest)


def load(path: Path) -> Template:
    """A template of the store; raises SandboxError when it is not what it was when it was built."""
    try:
        about = json.loads((path / _ABOUT).read_text())
        found = Template(
            path=path,
            digest=about.pop("digest"),
            commit=about["commit"],
            needs=tuple(about["needs"]),
            lock=about["lock"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{path} is no template ({error}): build it again") from error
    if about.get("format") != FORMAT:
        raise SandboxError(f"{path} is a template of format {about.get('format')}: build it again")
    digest = _digest(path, about)
    if digest != found.digest or path.name != found.digest:
        raise SandboxError(
            f"the template {path} has digest {digest}, not {found.digest}: delete and rebuild it"
        )
    toolchain.check(found.needs, path)
    return found


def _digest(made: Path, about: dict[str, object]) -> str:
    state = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for part in ("repo", "deps"):
        state.update(tree.digest(str(made / part)).encode() if (made / part).is_dir() else b"none")
    return state.hexdigest()[:32]


def _commit(repo: Path) -> str:
    """One commit of all files, with nothing of this machine in it; answers its id."""
    environment = {**scrub.environment(), **_WHO}

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "core.logAllRefUpdates=false", "-c", "gc.auto=0", *arguments],
            cwd=repo,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SandboxError(f"git {arguments[0]} failed in {repo}: {done.stderr.strip()[:300]}")
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main", "--template=")
    git("add", "--all", "--force")
    git("commit", "--quiet", "--allow-empty", "--no-verify", "--message=start")
    for name in ("COMMIT_EDITMSG", "index.lock", "ORIG_HEAD"):
        (repo / ".git" / name).unlink(missing_ok=True)
    shutil.rmtree(repo / ".git" / "logs", ignore_errors=True)
    return git("rev-parse", "HEAD")


def _publish(made: Path, place: Path) -> None:
    """Whole or not at all; whoever was first stays."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
