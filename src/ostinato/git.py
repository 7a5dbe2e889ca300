"""The only place that starts git: what the settings of a repository name as a program is not run.

Opening a folder starts git, and git obeys the settings of the repository that it meets there, which a
stranger may have written: monitors, hooks, filters, drivers, signatures, remote helpers.

::

    settings ─► those that are known to name no program ─► pinned ─► start

So a command of ours first lists the settings, which runs nothing. It then runs in a git directory of its own,
which has the objects, the refs and the index of the repository, but neither its settings nor its hooks. The
listed settings are given to it, those of the repository only where they are known to name no program. What
is written into the repository's settings after they were listed has no effect on it. Nested repositories have
settings of their own: no command of ours enters one (`--ignore-submodules=dirty`, and an index without its
links when files are added).

The settings of the person and of the machine are obeyed, as everywhere: a filter that they set up works.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks"
    r"|autocrlf|eol|safecrlf|checkroundtripencoding|quotepath|worktree|sharedrepository|protecthfs"
    r"|protectntfs|untrackedcache|splitindex|sparsecheckout|sparsecheckoutcone|trustctime|checkstat"
    r"|preloadindex|compression|loosecompression|bigfilethreshold|deltabasecachelimit|packedgitlimit"
    r"|packedgitwindowsize|multipackindex|commitgraph|abbrev|excludesfile|attributesfile|whitespace"
    r"|warnambiguousrefs|commentchar|createobject|fsyncobjectfiles|fsync|fsyncmethod|hidedotfiles"
    r"|usereplacerefs|maxtreedepth|packedrefstimeout|filesreflocktimeout|notesref|bigfilestreamingthreshold)"
    r"|extensions\.(?!partialclone)[^.]+|(user|author|committer|branch|color|advice|i18n|pack|index|feature|init|rerere|column"
    r"|maintenance|transfer|fetch|push|pull|stash|tag|notes|worktree|http|blame|clean|checkout|rebase|merge"
    r"|status|sparse|commitgraph|gitcvs)\.[^.]+"
    r"|branch\..*|http\..*|lfs\.(repositoryformatversion|.*\.(access|locksverify))"
    r"|remote\.(pushdefault|.*\.(url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate|gh-resolved))"
    r"|submodule\.(recurse|active|fetchjobs|.*\.(url|active|branch|ignore|shallow))"
    r"|diff\.(algorithm|context|interhunkcontext|renames|renamelimit|mnemonicprefix|noprefix|orderfile"
    r"|suppressblankempty|wserrorhighlight|colormoved|colormovedws|indentheuristic|relative|statgraphwidth"
    r"|ignoresubmodules|autorefreshindex|dirstat)"
    r"|diff\..*\.(binary|xfuncname|funcname|wordregex|cachetextconv|algorithm)"
    r"|log\.(abbrevcommit|date|decorate|follow|mailmap|diffmerges|excludedecoration|initialdecorationset)"
    r"|commit\.(cleanup|gpgsign|status|verbose)|gpg\.(format|mintrustlevel)",
    re.DOTALL,
)
"""The settings that name no program which a command of ours would run. A repository has no other one."""
FORMAT = re.compile(r"extensions\.[^.]+|core\.(repositoryformatversion|bare|worktree)")
"""The settings that say what the repository is, which git reads from its own file alone."""
KEPT_FORMAT = re.compile(r"extensions\.(objectformat|compatobjectformat|refstorage)")
UNPINNED = {"config", "config.worktree", "commondir", "gitdir", "hooks", "modules"}
"""The entries of a git directory that a command of ours does not see."""
INCLUDING = ("include.", "includeif.")
"""The keys that name a further file; the settings in it are listed with the rest."""
MOST_KEYS, MOST_BYTES, MOST_OUTPUT = 2000, 100_000, 1 << 28
QUIET = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""The variables of every command: a missing object is not fetched, since a remote may be a program."""
BINDING = frozenset(
    f"GIT_{name}"
    for name in (
        *(
            "DIR",
            "WORK_TREE",
            "COMMON_DIR",
            "INDEX_FILE",
            "OBJECT_DIRECTORY",
            "PREFIX",
            "NAMESPACE",
            "CONFIG",
        ),
        *(
            "ALTERNATE_OBJECT_DIRECTORIES",
            "SHALLOW_FILE",
            "GRAFT_FILE",
            "REPLACE_REF_BASE",
            "QUARANTINE_PATH",
        ),
        *("IMPLICIT_WORK_TREE", "INTERNAL_SUPER_PREFIX", "CONFIG_PARAMETERS", "NO_REPLACE_OBJECTS"),
    )
)
"""The variables by which a hook of git, or whoever started us, binds every git command to one repository. The
commands of an agent are about the one that they run in."""
ALWAYS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "log.showSignature": "false",
    "submodule.recurse": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting that git reads in a folder.

    >>> Setting(scope="local", origin="/repo/.git/config", key="core.bare", value="false").names_program
    False
    """

    scope: str
    """`system`, `global`, `local` or `worktree`, that of the including file where it is included."""
    origin: str
    """The path of the file that holds it."""
    key: str
    """The key as git writes it: in lower case, but for the part in the middle."""
    value: str

    @property
    def names_program(self) -> bool:
        """Return whether it is the repository's own, and not known to name no program."""
        own = self.scope in {"local", "worktree"}
        return own and not HARMLESS.fullmatch(self.key) and not self.key.startswith(INCLUDING)

    @property
    def included(self) -> str:
        """Return the path of the file that it includes on whatever condition, or an empty text."""
        if not self.key.startswith(INCLUDING) or not self.key.endswith(".path") or not self.value:
            return ""
        return str(Path(self.origin).parent / os.path.expanduser(self.value))  # noqa: PTH111


def settings(
    directory: str | Path, base: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
) -> list[Setting]:
    """Return the settings that git reads at the top of a working tree, those of included files too.

    Reading them runs nothing. `base` replaces the process's own environment without the variables that a hook
    of git sets. Raises subprocess.SubprocessError where they cannot be read, and FileNotFoundError without
    git.
    """
    listing = ("config", "--null", "--show-scope", "--show-origin", "--list")
    done = start(directory, *listing, environment=_alone(base), timeout_s=timeout_s)
    done.check_returncode()
    fields = done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    found = []
    for scope, origin, entry in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        key, _, value = entry.partition("\n")
        path = os.path.join(directory, origin.removeprefix("file:"))  # noqa: PTH118
        found.append(Setting(scope=scope, origin=path, key=key, value=value))
    if len({each.key for each in found}) > MOST_KEYS:
        raise subprocess.SubprocessError(f"{directory} has more than {MOST_KEYS} settings of git")
    return found


@contextmanager
def pinned(
    directory: str | Path, base: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
) -> Iterator[dict[str, str]]:
    """Yield the environment in which git obeys the settings of this moment, and runs no program of them.

    They are those of the repository here that name no program, and those of the person and the machine.
    Commands that ask for the paths of the git directory do not belong in it, since it has one of its own.
    `base` is that of `settings`, and the errors are the same.
    """
    git_dir, common, top = _place(directory, base, timeout_s)
    found = settings(directory, base, timeout_s=timeout_s)
    # What a file includes is in the list itself.
    kept = [each for each in found if not each.names_program and not each.key.startswith(INCLUDING)]
    obeyed = [(each.key, each.value) for each in kept if not FORMAT.fullmatch(each.key)]
    environment = _alone(base) | _given([*obeyed, *ALWAYS.items()])
    with tempfile.TemporaryDirectory(prefix="ostinato-git-") as folder:
        own = _mirror(Path(common), Path(folder, "common"))
        (own / "config").write_text(_format(found, bare=not top))
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        if git_dir == common:
            environment["GIT_DIR"] = str(own)
        else:
            environment["GIT_DIR"] = str(_mirror(Path(git_dir), Path(folder, "git")))
            environment["GIT_COMMON_DIR"] = str(own)
        if top:
            environment["GIT_WORK_TREE"] = top
        yield environment


def run(
    directory: str | Path,
    *arguments: str,
    base: Mapping[str, str] | None = None,
    given: bytes = b"",
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Return the result of one git command in a repository that nobody trusts, as `pinned` has it."""
    with pinned(directory, base, timeout_s=timeout_s) as environment:
        return start(directory, *arguments, environment=environment, given=given, timeout_s=timeout_s)


def where(
    directory: str | Path, *arguments: str, base: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> bytes:
    """Return what `git rev-parse` says about the place of a repository, which runs nothing.

    Raises subprocess.CalledProcessError with git's own message, and the errors of `start`.
    """
    done = start(directory, "rev-parse", *arguments, environment=_alone(base), timeout_s=timeout_s)
    done.check_returncode()
    return done.stdout


def trusting(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which git obeys the settings that it finds, as in a repository of our own.

    Even so it fetches nothing and asks for no password, and runs no hook and no monitor. `base` is that of
    `settings`.
    """
    return _alone(base) | _given([*ALWAYS.items()])


def start(
    directory: str | Path,
    *arguments: str,
    environment: Mapping[str, str],
    given: bytes = b"",
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Return the result of one git command, which obeys the settings that it finds under `environment`.

    Nothing else in this program starts git. Raises subprocess.TimeoutExpired, subprocess.SubprocessError for
    more than MOST_OUTPUT bytes, which a few small objects can stand for, and OSError where git cannot be
    started.
    """
    command = ["git", "-C", str(directory), *arguments]
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said:
        asked.write(given)
        asked.seek(0)
        process = subprocess.Popen(
            command,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=said,
            env=dict(environment),
            process_group=0,  # what git has started ends with it
        )
        late = threading.Timer(timeout_s or 0.0, _end, (process.pid,))
        late.daemon = True
        if timeout_s is not None:
            late.start()
        with process:
            try:
                assert process.stdout is not None
                output = process.stdout.read(MOST_OUTPUT + 1)
                if len(output) > MOST_OUTPUT:
                    raise subprocess.SubprocessError(
                        f"git {arguments[0]} wrote more than {MOST_OUTPUT >> 20} MiB"
                    )
            except BaseException:
                late.cancel()
                _end(process.pid)
                raise
        is_late = timeout_s is not None and late.finished.is_set()
        late.cancel()
        if is_late:
            raise subprocess.TimeoutExpired(command, timeout_s or 0.0)
        said.seek(0)
        errors = said.read(MOST_OUTPUT)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def reason(error: subprocess.SubprocessError | FileNotFoundError) -> str:
    """Return why a git command failed, or was not started, in git's own words where it had some."""
    if isinstance(error, FileNotFoundError):
        return "git is not installed"
    if isinstance(error, subprocess.CalledProcessError):
        said: bytes = error.stderr
        return said.decode(errors="replace").strip().removeprefix("fatal: ")
    return str(error)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def nested(directory: str | Path, *, most: int = 200, timeout_s: float = 60.0) -> Iterator[str]:
    """Yield the folders of the repositories that git enters from the top of this one, at every depth.

    They are those to which an index links. Raises subprocess.SubprocessError where an index cannot be read,
    or where there are more than `most`; FileNotFoundError without git.
    """
    waiting, seen = [str(directory)], {os.path.realpath(directory)}
    while waiting:
        here = waiting.pop()
        listed = run(here, "ls-files", "--stage", "-z", timeout_s=timeout_s)
        listed.check_returncode()
        for path in links_in(listed.stdout).split(b"\0")[:-1]:
            below = os.path.join(here, os.fsdecode(path))  # noqa: PTH118
            real = os.path.realpath(below)
            if real not in seen and os.path.lexists(f"{below}/.git"):
                seen.add(real)
                waiting.append(below)
                yield below
        if len(seen) > most:
            raise subprocess.SubprocessError(f"{directory} has more than {most} repositories within")


def links_in(staged: bytes) -> bytes:
    """Return the paths of the links to nested repositories, as `update-index -z --stdin` reads them.

    `staged` is the output of `ls-files --stage -z`. They are removed from an index before files are added:
    for a link that is there already, git would be started in the nested repository, which has settings of its
    own. Of a new link it reads the head alone.
    """
    rows = (row for row in staged.split(b"\0") if row.startswith(b"160000 "))
    return b"".join(row.partition(b"\t")[2] + b"\0" for row in rows)


def _place(directory: str | Path, base: Mapping[str, str] | None, timeout_s: float) -> tuple[str, str, str]:
    """Return a git directory, the one that all its work trees share, and the top of the work tree, if any."""
    plain = Path(os.path.realpath(directory), ".git")
    usual = plain.is_dir() and (plain / "HEAD").is_file() and not (plain / "commondir").exists()
    if usual and {plain.stat().st_uid, plain.parent.stat().st_uid} == {os.geteuid()}:
        return str(plain), str(plain), str(plain.parent)  # git may refuse a repository of somebody else
    absolute = ("--path-format=absolute", "--git-dir", "--git-common-dir")
    asked = ("--is-inside-work-tree", "--show-cdup", *absolute)
    inside, *rows = os.fsdecode(where(directory, *asked, base=base, timeout_s=timeout_s))[:-1].split("\n")
    above = rows.pop(0) if inside == "true" else ""
    # A path may hold newlines.
    pairs = (("\n".join(rows[:at]), "\n".join(rows[at:])) for at in range(1, len(rows)))
    place = next((pair for pair in pairs if all(map(os.path.isdir, pair))), None)
    if place is None:
        raise subprocess.SubprocessError(f"{directory} lies neither in a work tree nor in a bare repository")
    return *place, os.path.realpath(Path(directory, above)) if inside == "true" else ""


def _alone(base: Mapping[str, str] | None) -> dict[str, str]:
    """Return an environment in which git fetches nothing and asks for no password."""
    if base is None:
        base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**base, **QUIET}


def _given(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the variables by which git gets these settings. Raises subprocess.SubprocessError."""
    if sum(len(key) + len(value) for key, value in pairs) > MOST_BYTES:
        raise subprocess.SubprocessError(f"the settings of git have more than {MOST_BYTES} characters")
    variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _mirror(source: Path, own: Path) -> Path:
    """Make the folder `own` a git directory with links to what `source` has, and return it."""
    own.mkdir()
    for entry in source.iterdir():
        if entry.name == "HEAD":  # git takes no link for it
            (own / "HEAD").write_bytes(entry.read_bytes())
        elif entry.name not in UNPINNED:
            (own / entry.name).symlink_to(entry)
    return own


def _format(found: Sequence[Setting], *, bare: bool) -> str:
    """Return the settings that say what the repository is, as the text of a file."""
    said = {each.key: each.value for each in found if each.scope == "local"}
    version = "1" if said.get("core.repositoryformatversion") == "1" else "0"
    kinds = {key: value for key, value in said.items() if KEPT_FORMAT.fullmatch(key) and value.isalnum()}
    rows = [f"\t{key.partition('.')[2]} = {value}\n" for key, value in kinds.items()]
    core = f"[core]\n\trepositoryformatversion = {version}\n\tbare = {str(bare).lower()}\n"
    return core + "[extensions]\n" + "".join(rows)
