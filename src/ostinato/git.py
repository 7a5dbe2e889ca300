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
from collections.abc import Mapping
from pathlib import Path

HARMLESS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks"
    r"|autocrlf|eol|safecrlf|checkroundtripencoding|quotepath|worktree|sharedrepository|protecthfs"
    r"|protectntfs|untrackedcache|splitindex|sparsecheckout|sparsecheckoutcone|trustctime|checkstat"
    r"|preloadindex|compression|loosecompression|bigfilethreshold|deltabasecachelimit|packedgitlimit"
    r"|packedgitwindowsize|multipackindex|commitgraph|abbrev|excludesfile|attributesfile|whitespace"
    r"|warnambiguousrefs|commentchar|createobject|fsyncobjectfiles|fsync|fsyncmethod|hidedotfiles"
    r"|usereplacerefs|maxtreedepth|packedrefstimeout|filesreflocktimeout|notesref|bigfilestreamingthreshold)"
    r"|(extensions|user|author|committer|branch|color|advice|i18n|pack|index|feature|init|rerere|column"
    r"|maintenance|transfer|fetch|push|pull|stash|tag|notes|worktree|http|blame|clean|checkout|rebase|merge"
    r"|status|sparse|commitgraph|gitcvs)\.[^.]+"
    r"|branch\..*\.(merge|remote|rebase|description|pushremote|mergeoptions)"
    r"|remote\.(pushdefault|.*\.(url|pushurl|fetch|push|tagopt|prune|prunetags|mirror|skipdefaultupdate))"
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
ALWAYS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "log.showSignature": "false",
    "submodule.recurse": "false",
}


def links_in(staged: bytes) -> bytes:
    """Return the paths of the links to nested repositories, as `update-index -z --stdin` reads them.

    `staged` is the output of `ls-files --stage -z`. They are removed from an index before files are added:
    for a link that is there already, git would be started in the nested repository, which has settings of its
    own. Of a new link it reads the head alone.
    """
    rows = (row for row in staged.split(b"\0") if row.startswith(b"160000 "))
    return b"".join(row.partition(b"\t")[2] + b"\0" for row in rows)


def environment(
    directory: str | Path, base: Mapping[str, str] | None = None, *, timeout_s: float = 60.0
) -> dict[str, str]:
    """Return the environment in which git runs no program that the settings of the repository here name.

    `base` replaces the process's own environment without the variables that a hook of git sets. Raises
    subprocess.SubprocessError where the settings cannot be read, and FileNotFoundError without git.
    """
    if base is None:
        base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    base = {**base, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    listed = subprocess.run(
        ["git", "-C", str(directory), "config", "--null", "--show-scope", "--name-only", "--list"],
        capture_output=True,
        check=True,
        env=base,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    ).stdout
    fields = listed.decode(errors="surrogateescape").split("\0")[:-1]
    named = {
        key for scope, key in zip(fields[::2], fields[1::2], strict=True) if scope in {"local", "worktree"}
    }
    if len(named) > MOST_KEYS:
        raise subprocess.SubprocessError(
            f"{directory} has {len(named)} settings of git, more than {MOST_KEYS}"
        )
    unknown = {key for key in named if not HARMLESS.fullmatch(key) and not key.startswith(INCLUDING)}
    settings = dict.fromkeys(sorted(unknown), "") | ALWAYS
    pairs: dict[str, str] = {}
    for number, (key, value) in enumerate(settings.items()):
        pairs |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return {**base, "GIT_CONFIG_COUNT": str(len(settings)), **pairs}
