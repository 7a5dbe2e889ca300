"""Templates in a store: built once, found again by their digest, and checked before use."""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ostinato.git import start
from ostinato.sandbox.base import Limits, Mount, SandboxError, Spec
from ostinato.sandbox.environment import images, scrub, toolchain, wheels
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
    """The digest of files, dependencies and needs, which is its name in the store."""
    commit: str
    """The id of the only commit in its repository."""
    needs: tuple[str, ...]
    lock: wheels.Lock

    def spec(self, limits: Limits | None = None) -> Spec:
        """Return the spec of a sandbox, with the dependencies mounted read-only beside the repository."""
        mounts = (Mount(source=self.path / "deps", target=DEPS),) if self.lock else ()
        environment = {"PYTHONPATH": DEPS} if self.lock else {}
        return Spec(
            repo=self.path / "repo", limits=limits or Limits(), mounts=mounts, environment=environment
        )


def build(
    source: Path, store: Path, *, commit: str | None = None, wheelhouse: Path | None = None
) -> Template:
    """Build a template from a Harbor task or a repository (at `commit`), with the wheels of `wheelhouse`.

    An equal one in the store is used again. Raises SandboxError if something is missing, and leaves the store
    as it was.
    """
    repo = source / "environment" / "repo"
    programs = toolchain.needs(source) if repo.is_dir() else ()
    toolchain.check(programs, source)
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=".part-") as scratch:
        draft = Path(scratch, "template")
        scrub.checkout(repo if repo.is_dir() else source, commit, draft / "repo")
        lock = wheels.lock_of(wheelhouse) if wheelhouse is not None else {}
        if wheelhouse is not None:
            wheels.install(lock, wheelhouse, draft / "deps")
        about = {"format": FORMAT, "commit": _commit(draft / "repo"), "needs": programs, "lock": lock}
        digest = _digest(draft, about)
        (draft / _ABOUT).write_text(json.dumps({**about, "digest": digest}, indent=1, sort_keys=True) + "\n")
        images.publish(draft, store / digest)
    return load(store / digest)


def load(path: Path) -> Template:
    """Load a template from the store. Raises SandboxError if it has changed since it was built."""
    try:
        about = json.loads((path / _ABOUT).read_text())
        template = Template(
            path=path,
            digest=about.pop("digest"),
            commit=about["commit"],
            needs=tuple(about["needs"]),
            lock=about["lock"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{path} is not a template ({error}): build it again") from error
    if about.get("format") != FORMAT:
        raise SandboxError(f"{path} is a template of format {about.get('format')}: build it again")
    digest = _digest(path, about)
    if digest != template.digest or path.name != template.digest:
        raise SandboxError(
            f"the template {path} has digest {digest}, not {template.digest}: delete and rebuild it"
        )
    toolchain.check(template.needs, path)
    return template


def write_repository(source: Path, target: Path) -> str:
    """Copy the files of a directory to `target`, as a repository of one commit, and return the commit's id.

    Raises SandboxError, and leaves no `target`.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as scratch:
        draft = Path(scratch, "repo")
        scrub.checkout(source, None, draft)
        commit = _commit(draft)
        draft.rename(target)
    return commit


def _digest(root: Path, about: dict[str, object]) -> str:
    state = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for part in ("repo", "deps"):
        state.update(tree.digest(str(root / part)).encode() if (root / part).is_dir() else b"none")
    return state.hexdigest()[:32]


def _commit(repo: Path) -> str:
    """Make one commit of all files, without a trace of this machine; return its id."""
    environment = {**scrub.environment(), **_WHO}

    def git(*arguments: str) -> str:
        settings = ("-c", "core.logAllRefUpdates=false", "-c", "gc.auto=0")
        done = start(repo, *settings, *arguments, environment=environment)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[:300]
            raise SandboxError(f"git {arguments[0]} failed in {repo}: {said}")
        return os.fsdecode(done.stdout).strip()

    git("init", "--quiet", "--initial-branch=main", "--template=")
    git("add", "--all", "--force")
    git("commit", "--quiet", "--allow-empty", "--no-verify", "--message=start")
    for name in ("COMMIT_EDITMSG", "index.lock", "ORIG_HEAD"):
        (repo / ".git" / name).unlink(missing_ok=True)
    shutil.rmtree(repo / ".git" / "logs", ignore_errors=True)
    return git("rev-parse", "HEAD")
