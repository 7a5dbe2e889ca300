"""The git hooks of ostinato, which leave the text, name and exit status of hooks already there as they are.

Each hook file gets one marked block. In a shell script that is already there the block goes below the
first line. It starts a process in the background and touches neither arguments nor input. A hook that
cannot be joined like this is refused before anything is written, with the line to add by hand.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.edits.capture.repository_paths import ENABLED, RepositoryPaths, find_repository, state_of
from ostinato.edits.git import GitCommandError, ask, git, where
from ostinato.git import links_in

HOOKS = ("post-commit", "post-merge", "post-rewrite", "post-checkout", "post-applypatch")
BEGIN = "# >>> ostinato hooks >>> (`ostinato hooks uninstall` removes this block)"
END = "# <<< ostinato hooks <<<"
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


class InstallError(Exception):
    """The error when hooks cannot be installed; the message says what to do and what was not restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFile:
    """A hook file and its new text; None removes it.

    >>> HookFile(path=Path("post-commit"), text=None).text
    """

    path: Path
    text: str | None


def find(directory: Path) -> RepositoryPaths:
    """Return the repository to install in. Raise InstallError for none, a bare one, or the inside of .git."""
    if not directory.is_dir():
        raise InstallError(f"{directory} is no folder")
    try:
        bare = where(directory, "--is-bare-repository") == "true"
        inside = where(directory, "--is-inside-work-tree") == "true"
    except GitCommandError as error:
        if "not a git repository" not in str(error):
            raise InstallError(f"git will not work in {directory}: {error}") from error
        raise InstallError(f"no git repository at {directory}: run `git init` there first") from error
    if bare:
        raise InstallError(f"{directory} is a bare repository, nobody edits in it: install in a clone of it")
    repo = find_repository(str(directory)) if inside else None
    if repo is None:
        raise InstallError(f"{directory} is not in a work tree: name the folder with the files (--directory)")
    return repo


def install(repo: RepositoryPaths, *, git_hooks: bool = True) -> list[str]:
    """Write the hooks and enable recording; return what was done and what to know. Raise InstallError."""
    plan = _plan(repo) if git_hooks else []
    _write_all(plan)
    state = Path(state_of(repo))
    state.mkdir(mode=0o700, exist_ok=True)
    (state / ENABLED).touch()
    messages = [f"journal in {state}"]
    if git_hooks:
        messages.insert(0, f"git hooks in {hooks_folder(repo)}: {', '.join(HOOKS)}")
    return messages + _hints(repo)


def uninstall(repo: RepositoryPaths) -> list[str]:
    """Remove what `install` wrote; the journal stays. Raise InstallError."""
    folder = hooks_folder(repo)
    plan = [
        HookFile(path=folder / name, text=_without_block(_text(folder / name)) or None)
        for name in HOOKS
        if BEGIN in _text(folder / name)
    ]
    _write_all([HookFile(path=f.path, text=None if _is_empty(f.text) else f.text) for f in plan])
    state = Path(state_of(repo))
    (state / ENABLED).unlink(missing_ok=True)
    removed = ", ".join(file.path.name for file in plan) or "none were there"
    return [f"git hooks removed: {removed}", f"what was recorded stays in {state} until you delete it"]


def installed(repo: RepositoryPaths) -> Mapping[str, bool]:
    """Return for each hook whether it holds our block."""
    folder = hooks_folder(repo)
    return {name: BEGIN in _text(folder / name) for name in HOOKS}


def hooks_folder(repo: RepositoryPaths) -> Path:
    """Return the folder in which git looks for hooks; the setting `core.hooksPath` may change it."""
    folder = Path(where(repo.root, "--git-path", "hooks")).expanduser()
    return Path(os.path.normpath(Path(repo.root) / folder))


def block(name: str) -> str:
    """Return the lines that report an event silently in the background, if this Python still exists."""
    python = shlex.quote(sys.executable)
    command = f"{python} -P -m ostinato hook --git {name}"
    return f"{BEGIN}\n[ -x {python} ] && {command} </dev/null >/dev/null 2>&1 &\n{END}\n"


def _plan(repo: RepositoryPaths) -> list[HookFile]:
    folder = hooks_folder(repo)
    _check_folder(repo, folder)
    return [_joined(folder / name) for name in HOOKS]


def _check_folder(repo: RepositoryPaths, folder: Path) -> None:
    own = Path(repo.common).resolve()
    where = folder.resolve()
    if where.is_relative_to(own):
        return
    if not where.is_relative_to(Path(repo.root).resolve()):
        raise InstallError(
            f"core.hooksPath sends the hooks of several repositories to {folder}: add the block below to the "
            f"hooks there yourself, or run `git config --local core.hooksPath {own / 'hooks'}` here first; "
            f"`ostinato hooks install --no-git-hooks` records edits without git hooks\n\n{block('NAME')}"
        )
    if ask(repo.root, "check-ignore", "--quiet", str(folder / HOOKS[0])) is None:
        raise InstallError(
            f"the hooks in {folder} belong to the repository (core.hooksPath) and are shared with everybody: "
            f"add the block below to them yourself, or use `ostinato hooks install --no-git-hooks`\n\n"
            f"{block('NAME')}"
        )


def _joined(path: Path) -> HookFile:
    """Return a hook file with our block in it."""
    if path.is_symlink():
        raise _refused(path, "is a link to a file elsewhere")
    if path.exists() and not path.is_file():
        raise _refused(path, "is no file")
    text = _text(path)
    if not text:
        return HookFile(path=path, text="#!/bin/sh\n" + block(path.name))
    if _is_empty(_without_block(text)):
        return HookFile(path=path, text=_without_block(text) + block(path.name))
    first, _, rest = _without_block(text).partition("\n")
    words = first.removeprefix("#!").split()
    shell = [Path(word).name for word in words if not word.startswith("-")]
    if not first.startswith("#!") or not shell or shell[-1] not in SHELLS:
        raise _refused(path, "is not a shell script")
    if not os.access(path, os.X_OK):
        raise _refused(path, "is switched off (not executable)")
    return HookFile(path=path, text=f"{first}\n{block(path.name)}{rest}")


def _refused(path: Path, why: str) -> InstallError:
    return InstallError(
        f"{path} is somebody else's hook and {why}; nothing was written: let it run these lines and install "
        f"with --no-git-hooks, or remove it\n\n{block(path.name)}"
    )


def _write_all(plan: list[HookFile]) -> None:
    """Write all files or none."""
    before = {
        file.path: (file.path.read_bytes(), file.path.stat().st_mode) for file in plan if file.path.exists()
    }
    try:
        for file in plan:
            _write(file.path, file.text, before[file.path][1] if file.path in before else 0o755)
    except OSError as error:
        changed = [str(file.path) for file in plan if not _is_restored(file.path, before.get(file.path))]
        state = f"restore by hand {', '.join(changed)}" if changed else "nothing was changed"
        raise InstallError(f"cannot write {error.filename}: {error.strerror}; {state}") from error


def _write(path: Path, text: str | None, mode: int) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.ostinato-{os.getpid()}")
    part.write_bytes(text.encode(errors="surrogateescape"))
    part.chmod(mode & 0o777)
    part.replace(path)


def _is_restored(path: Path, before: tuple[bytes, int] | None) -> bool:
    """Restore a file after a failure; return False when that fails too, since others still have a turn."""
    try:
        if before is None:
            path.unlink(missing_ok=True)
        elif path.read_bytes() != before[0]:
            path.write_bytes(before[0])
            path.chmod(before[1] & 0o777)
    except OSError:
        return False
    return True


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    return path.read_bytes().decode(errors="surrogateescape")


def _without_block(text: str) -> str:
    start, end = text.find(BEGIN), text.find(END)
    if start < 0 or end < 0:
        return text
    return text[:start] + text[end + len(END) :].removeprefix("\n")


def _is_empty(text: str | None) -> bool:
    return text is None or text.strip() in ("", "#!/bin/sh")


def _hints(repo: RepositoryPaths) -> list[str]:
    """Return what the developer should know about this repository."""
    hints = []
    if ask(repo.root, "rev-parse", "--verify", "--quiet", "HEAD") is None:
        hints.append("no commit yet: edits are followed, and told from the first commit on")
    links = links_in(git(repo.root, "ls-files", "--stage", "-z")).split(b"\0")[:-1]
    if names := [os.fsdecode(path) for path in links]:
        hints.append(f"submodules have hooks of their own, install there too: {', '.join(names)}")
    return hints
