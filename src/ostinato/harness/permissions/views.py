"""The programs that a command runs beside its first word: through wrappers, shells and options. Denials use
them.

The commands of `certain` surely run, so a denial of one denies the whole. Those of `tails` and `lines` may
run, since any program may run what is named among its words, so a denial of one makes the user be asked.
"""

import itertools
import posixpath
import re
from collections.abc import Iterator, Sequence

from ostinato.harness.permissions.repository import LOOKING
from ostinato.harness.permissions.shell import UNKNOWN, Opaque, WordPart, split

WRAPPERS = {"env", "sudo", "doas", "nohup", "time", "nice", "ionice", "timeout", "xargs", "command", "exec"}
WRAPPERS |= {
    "builtin",
    "stdbuf",
    "setsid",
    "watch",
    "find",
    "parallel",
    "flock",
    "busybox",
    "chrt",
    "taskset",
}
WRAPPERS |= {"unshare", "nsenter", "chroot", "strace", "ltrace", "prlimit", "runuser", "script", "unbuffer"}
"""The programs that run the program named after them, which a denial looks through."""
SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "eval", "script", "su", "flock", "watch"}
"""The programs that run a word as a command line."""
CODE = {
    "python": "c",
    "pypy": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "bun": "ep",
    "php": "rBE",
    "lua": "e",
}
CODE |= {"deno": "", "tclsh": "", "awk": "", "gawk": "", "mawk": "", "nawk": ""}
"""The interpreters, and the letters of the options by which they run a word."""
ONLY_READ = {
    "ls",
    "pwd",
    "true",
    "false",
    "cat",
    "head",
    "tail",
    "grep",
    "wc",
    "stat",
    "cmp",
    "diff",
    "test",
    "[",
}
"""The programs that write to none of the files among their words."""
WRITERS = {"cp", "mv", "tee", "dd", "install", "ln", "rm", "rmdir", "unlink", "shred", "truncate", "touch"}
WRITERS |= {"sed", "rsync", "patch", "chmod", "chown", "sponge"}
"""The programs whose words are mostly the files that they write, so that no word of theirs may be unknown."""
OF_SCRIPT = re.compile(r"[\s'\"();<>|=,]+")
"""The characters between the words of a script: `sed 'w secret'`, `awk '{print > "secret"}'`."""
RUNNERS = {"ssh", "docker", "podman", "kubectl"}
"""The programs that run their words elsewhere."""
APPENDING = {"xargs", "parallel"}
"""The programs that add words of their standard input to a command."""
GIT_COMMANDS = re.compile(
    r"add|am|apply|archive|bisect|blame|branch|bundle|cat-file|check-ignore|checkout|cherry|"
    r"cherry-pick|clean|clone|commit|config|describe|diff|difftool|fetch|for-each-ref|"
    r"format-patch|fsck|gc|grep|help|init|log|ls-files|ls-remote|ls-tree|merge|merge-base|"
    r"mergetool|mv|notes|pull|push|range-diff|rebase|reflog|remote|reset|restore|rev-list|"
    r"rev-parse|revert|rm|shortlog|show|show-ref|sparse-checkout|stash|status|submodule|switch|"
    r"symbolic-ref|tag|update-index|version|worktree"
)
"""The subcommands that no alias replaces; any other word after `git` may be an alias of anything."""
GIT_TAKES_ONE = {"-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"}
DEEPEST, MOST_WORDS = 4, 200


def certain(part: WordPart) -> Iterator[str]:
    """Yield the commands that `part` surely runs, without path, assignments, wrapper or shell."""
    words = [word.value if word.value is not None else word.shape for word in part.program]
    return _views(words[:MOST_WORDS], DEEPEST)


def tails(part: WordPart, depth: int = DEEPEST) -> Iterator[str]:
    """Yield the shapes of commands that `part` may run: its words from each known one on.

    A word that is joined to an option (`-Sgit`, `--run=git`) counts too, a disk may ignore the case of a
    program's name, and UNKNOWN alone stands for a text that is run and cannot be read.
    """
    words = [word.value if word.value is not None else word.shape for word in part.program][:MOST_WORDS]
    names = [posixpath.basename(word).lower() for word in words]
    added = [UNKNOWN] if APPENDING.intersection(names) else []
    runs_words = bool(names) and names[0] in WRAPPERS | RUNNERS
    for at, word in enumerate(words):
        if UNKNOWN in word:
            continue
        rest = words[at + 1 :]
        for name in dict.fromkeys(posixpath.basename(each) for each in (*joined(word), word.lower())):
            yield _joined([name, *rest, *added])
        if at == 0 or runs_words:
            yield from _hidden(names[at], rest, depth)


def lines(part: WordPart) -> Iterator[str]:
    """Yield the words of `part` that may be command lines."""
    for word in part.program[:MOST_WORDS]:
        if word.value is not None and any(blank in word.value for blank in " \n\t"):
            for text in joined(word.value):
                yield from spellings(text)


def joined(word: str) -> list[str]:
    """Return a word, and what is joined in it to an option or a name.

    >>> joined("-Sgit"), joined("of=x")
    (['-Sgit', 'git'], ['of=x', 'x'])
    """
    value = word.partition("=")[2]
    short = word[2:] if re.match(r"-[A-Za-z]", word) else ""
    return [word, *filter(None, (value, short))]


def operands(part: WordPart) -> Iterator[str]:
    """Yield the words that may name a file, the words of scripts among them, and the names of copies.

    `cp a/x b` may write `b/x`, `cp -r a b` may write anything below `b`, and `tee $X` may write anything.
    """
    if not part.program:
        return
    program, *words = [word.value if word.value is not None else word.shape for word in part.program]
    words = words[:MOST_WORDS]
    writes = posixpath.basename(program).lower() in WRITERS
    whole = writes and any(re.fullmatch(r"-\w*[rRa]\w*|--(recursive|archive)", word) for word in words)
    folders = {words[-1], *_targets(words)} if words else set()
    for word, written in zip(words, part.program[1:], strict=False):
        if word.startswith(UNKNOWN):
            if writes:
                yield UNKNOWN if set("${").intersection(written.text) else word
            continue
        for text in joined(word):
            yield text
            yield from (piece for piece in OF_SCRIPT.split(text)[:MOST_WORDS] if piece and piece != text)
            if text.partition("=")[0] != text and text.endswith(f"={UNKNOWN}") and writes:
                yield UNKNOWN
        yield from (posixpath.join(folder, posixpath.basename(word)) for folder in folders)
        if "://" in word:
            yield posixpath.basename(word)
        if whole or (writes and program != "rm"):
            yield UNKNOWN if posixpath.normpath(word) == "." and whole else posixpath.join(word, UNKNOWN)


def _targets(words: Sequence[str]) -> Iterator[str]:
    """Yield the folders that an option names as the place of copies."""
    for option, value in itertools.pairwise([*words, ""]):
        if re.fullmatch(r"-\w*[tP]|--(target-directory|directory-prefix|output-dir)", option):
            yield value
        yield from re.findall(r"^(?:-t|--(?:target-directory|directory-prefix|output-dir)=)(.+)", option)


def only_reads(part: WordPart) -> bool:
    """Return whether a part writes to none of the files among its words."""
    words = [word.value for word in part.program[:2]]
    looks = words[:1] == ["git"] and words[-1] in LOOKING and "--output" not in part.command
    return looks or (bool(words) and words[0] in ONLY_READ)


def spellings(text: str) -> Iterator[str]:
    """Yield a text that may be a command line, as it stands and without its quotes."""
    yield text
    bare = text.translate({ord(char): None for char in "'\"\\"})
    if bare != text:
        yield bare


def _views(words: Sequence[str], depth: int) -> Iterator[str]:
    waiting = {0} if words and depth else set()
    done: set[int] = set()
    while waiting:
        at = waiting.pop()
        done.add(at)
        name, rest = posixpath.basename(words[at]).removesuffix(".exe"), words[at + 1 :]
        yield " ".join([name, *rest])
        if name.startswith("git-"):
            yield " ".join(["git", name.removeprefix("git-"), *rest])
        if name == "git":
            yield " ".join(["git", *_after_git_options(rest)])
        if name in WRAPPERS:
            waiting |= set(range(at + 1, len(words))) - done
        if name in SHELLS:
            for word in rest:
                yield from _inner(word, depth - 1)


def _inner(command: str, depth: int) -> Iterator[str]:
    try:
        for part in split(command):
            yield from _views([word.value or word.shape for word in part.program], depth)
    except Opaque:
        yield command


def _after_git_options(words: Sequence[str]) -> Sequence[str]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in GIT_TAKES_ONE else 1
    return words[at:]


def _hidden(name: str, words: Sequence[str], depth: int) -> Iterator[str]:
    """Yield the shapes of what a program runs that is not among its words as they stand."""
    if name in SHELLS:
        operands = [word for word in words if not word.startswith("-")]
        for line in operands or [UNKNOWN]:
            try:
                for part in split(line) if depth else ():
                    yield from tails(part, depth - 1)
            except Opaque:
                yield UNKNOWN
    letters = CODE.get(name.rstrip("0123456789."))
    if letters is not None:
        own = list(itertools.takewhile(lambda word: word != "-m", words))
        code = any(re.match(f"-[A-Za-z]*[{letters or 'f'}]|--(eval|print|run)", word) for word in own)
        if not letters or code or all(word.startswith("-") for word in words):
            yield UNKNOWN
    if name == "env" and any(re.match(r"-[A-Za-z]*S|--s", word) for word in words):
        yield UNKNOWN
    if name == "git" and _may_be_alias(words):
        yield f"git {UNKNOWN}"


def _may_be_alias(words: Sequence[str]) -> bool:
    """Return whether the subcommand of git is none that it surely has, or settings are among its words."""
    settings = any(word in {"-c", "--config-env"} or re.match(r"-c.|--config-env=", word) for word in words)
    after = _after_git_options(words)
    return settings or (bool(after) and GIT_COMMANDS.fullmatch(after[0]) is None)


def _joined(words: Sequence[str]) -> str:
    """Return the joined words, where one that only the shell knows may vanish with its blank or become
    several.
    """
    text = ""
    for word in words:
        hidden = UNKNOWN in word
        text += UNKNOWN if hidden else f" {word}" if text else word
    return text
