"""The programs that a command runs beside its first word: through wrappers, shells and options. Denials use
them.

The commands of `certain` surely run, so a denial of one denies the whole. Those of `tails` and `lines` may
run, since any program may run what is named among its words, so a denial of one makes the user be asked.
"""

import posixpath
from collections.abc import Iterator, Sequence

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
GIT_TAKES_ONE = {"-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"}
DEEPEST, MOST_WORDS = 4, 200


def certain(part: WordPart) -> Iterator[str]:
    """Yield the commands that `part` surely runs, without path, assignments, wrapper or shell."""
    words = [word.value if word.value is not None else word.shape for word in part.program]
    return _views(words[:MOST_WORDS], DEEPEST)


def tails(part: WordPart) -> Iterator[str]:
    """Yield the shapes of commands that `part` may run: its words from each known one on."""
    words = [word.value if word.value is not None else word.shape for word in part.program][:MOST_WORDS]
    for at, word in enumerate(words):
        if UNKNOWN in word:
            continue
        yield _joined([posixpath.basename(word), *words[at + 1 :]])


def lines(part: WordPart) -> Iterator[str]:
    """Yield the words of `part` that may be command lines."""
    for word in part.program[:MOST_WORDS]:
        if word.value is not None and any(blank in word.value for blank in " \n\t"):
            yield from spellings(word.value)


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
        name, rest = posixpath.basename(words[at]), words[at + 1 :]
        yield " ".join([name, *rest])
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


def _joined(words: Sequence[str]) -> str:
    """Return the joined words, where one that only the shell knows may vanish with its blank or become
    several.
    """
    text = ""
    for word in words:
        hidden = UNKNOWN in word
        text += UNKNOWN if hidden else f" {word}" if text else word
    return text
