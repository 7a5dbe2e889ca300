"""Git commands of our own: what the settings of a repository name as a program is not run.

Opening a folder starts git, and git obeys the settings of the repository that it meets there, which a
stranger may have written: monitors, hooks, filters, drivers, signatures, remote helpers. So each command that
this program starts by itself first lists the keys of these settings, which runs nothing, and overrides every
key that is not known to name no program. Nested repositories have settings of their own: no command of ours
enters one (`--ignore-submodules=dirty`, and an index without its links when files are added).

The settings of the person and of the machine are obeyed, as everywhere: a filter that they set up works.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
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
"""The settings that name no program which a command of ours would run. Every other one is overridden by the
empty text, which git takes for no program, for false, or for nothing."""
INCLUDING = ("include.", "includeif.")
"""The keys that name a further file; the settings in it are listed with the rest."""
MOST_KEYS = 2000
QUIET = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""The variables of every command: a missing object is not fetched, since a remote may be a program."""
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
    done = start(directory, *listing, environment=_asking_nobody(base), timeout_s=timeout_s)
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


def environment(
    directory: str | Path, base: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
) -> dict[str, str]:
    """Return the environment in which git runs no program that the settings of the repository here name.

    `base` is that of `settings`, and the errors are the same.
    """
    named = {each.key for each in settings(directory, base, timeout_s=timeout_s) if each.names_program}
    overriding = dict.fromkeys(sorted(named), "") | ALWAYS
    pairs: dict[str, str] = {}
    for number, (key, value) in enumerate(overriding.items()):
        pairs |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**_asking_nobody(base), "GIT_CONFIG_COUNT": str(len(overriding)), **pairs}


def start(
    directory: str | Path,
    *arguments: str,
    environment: Mapping[str, str],
    given: bytes = b"",
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Return the result of one git command, which obeys the settings that it finds under `environment`.

    Raises subprocess.TimeoutExpired, and OSError where git cannot be started.
    """
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(
        command, input=given, capture_output=True, check=False, env=dict(environment), timeout=timeout_s
    )


def nested(directory: str | Path, *, most: int = 200, timeout_s: float = 60.0) -> Iterator[str]:
    """Yield the folders of the repositories that git enters from the top of this one, at every depth.

    They are those to which an index links. Raises subprocess.SubprocessError where an index cannot be read,
    or where there are more than `most`; FileNotFoundError without git.
    """
    waiting, seen = [str(directory)], {os.path.realpath(directory)}
    while waiting:
        here = waiting.pop()
        safe = environment(here, timeout_s=timeout_s)
        listed = start(here, "ls-files", "--stage", "-z", environment=safe, timeout_s=timeout_s)
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


def _asking_nobody(base: Mapping[str, str] | None) -> dict[str, str]:
    """Return an environment in which git fetches nothing and asks for no password."""
    if base is None:
        base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**base, **QUIET}
