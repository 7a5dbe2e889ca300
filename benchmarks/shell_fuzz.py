"""The reader of shell commands against real shells: nothing runs or is written that it did not name.

::

    grammar and mutations ─► command ─► the policy ─┬─ asks: nothing to compare
                                                    └─ allows ─► dash, bash, and bash as `sh`, in a jail
                                                                   └─ ran, wrote: was it named?

The jail is a mount, process and network namespace whose root holds the shells, their libraries, and programs
that only note down how they were called: whatever a command runs, by PATH or by an absolute path, is one of
them, so nothing can run unseen. It is read-only but for a folder whose files are looked at after each one.
Two policies are asked: one that allows whatever can be read at all, and the one people have without a word.

    python -m benchmarks.shell_fuzz --commands 100000 --json

`unjudged` counts runs of a program, or written files, that were not among what the policy had looked at.
"""
# ruff: noqa: PTH - the jail is built and served with as few calls as can be

import argparse
import ctypes
import json
import os
import random
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from ostinato.harness.permissions import policy
from ostinato.harness.permissions.rules import Action, Permissions, Rule
from ostinato.harness.permissions.shell import Opaque, Part, split

SHELLS = {"dash": ("dash", "sh"), "bash": ("bash", "bash"), "bash_as_sh": ("bash", "sh")}
"""Name: the program, and what it is called as."""
READABLE = Permissions([Rule(tool="bash", pattern="?*", action=Action.ALLOW)])
"""Allows every command that can be read, and none that is opaque, which only `*` covers."""
DEFAULT = Permissions(policy.DEFAULT)
PROGRAMS = ("ok", "bad", "x", "no", "ls", "git", "make", "time", "a=b", "FOO+=1", "{", "}", "12", "2", "-s")
PROGRAMS += (
    "in",
    "do",
    "d,",
    "[[",
    "coproc",
    "select",
    "function",
    "\u00b2",
    "\u00e9",
    "ok\u00a0",
    "&",
    "#x",
    "!",
)
STUB = """#!/shell/dash
printf '%s\\000' "$0" "$@" '\037END' >> /log/ran
printf bad
case $0 in */no) exit 1;; esac
"""
ENVIRONMENT = {"PATH": "/bin", "X": "bad", "Y": "", "Z": "x bad", "HOME": "/jail/d", "ENV": "", "CDPATH": ""}
PATIENCE_S = 3.0
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    1 << 17,
    1 << 27,
    1 << 28,
    1 << 29,
    1 << 30,
)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a shell did: the words of each program that ran, and the files that it made or changed."""

    ran: list[list[str]]
    wrote: list[str]
    timed_out: bool = False


@dataclass(slots=True)
class Found:
    """What a number of commands came to."""

    counts: Counter[str] = field(default_factory=Counter)
    unjudged: list[tuple[str, str, str]] = field(default_factory=list)
    """The shell, the command, and what was not judged."""

    def add(self, other: "Found") -> None:
        self.counts += other.counts
        self.unjudged += other.unjudged


# What is tried: sentences of a grammar, then a few changes to them.

LITERALS = (
    "ok",
    "ok",
    "ok",
    "x",
    "bad",
    "no",
    "ls",
    "git",
    "make",
    "status",
    "diff",
    "log",
    "push",
    "-s",
    "d",
    "1",
)
LITERALS += (
    "2",
    "12",
    "./bad",
    "/bin/bad",
    "d/bad",
    "a=b",
    "FOO=1",
    "A+=1",
    "PATH=.",
    "X=ok",
    "true",
    "echo",
    "pwd",
)
LITERALS += ("test", "[", "]", "printf", ":", "--", "-", "=", "#x", "a#b", "$", "!", "%", ",", "@", "^", "..")
RARE_WORDS = (
    "time",
    "in",
    "if",
    "do",
    "done",
    "{",
    "}",
    "[[",
    "]]",
    "case",
    "esac",
    "for",
    "function",
    "coproc",
)
RARE_WORDS += (
    "select",
    "then",
    "fi",
    "else",
    "while",
    "until",
    "eval",
    "exec",
    "command",
    "builtin",
    "export",
    "set",
)
RARE_WORDS += (
    "alias",
    "unset",
    ".",
    "source",
    "trap",
    "read",
    "let",
    "declare",
    "local",
    "wait",
    "hash",
    "\u00b2",
)
RARE_WORDS += (
    "\u00e9",
    "x\u00a0y",
    "-v",
    "a[$(bad)]",
    "a[0]=x",
    "~",
    "~/x",
    "*",
    "?",
    "[a-z]*",
    "{ok,bad}",
    "{1..2}",
)
OPERATORS = (";", ";", "&&", "||", "|", "&", "\n", ";;", "|&", "&>", ";&", "\n\n", "& ", " ;", "!")
REDIRECTIONS = (
    ">",
    ">",
    ">>",
    "<",
    ">|",
    "2>",
    "2>&1 >",
    "1>",
    ">&",
    "<&",
    "<>",
    "&>",
    "&>>",
    "<<",
    "<<-",
    "<<<",
)
REDIRECTIONS += ("12>", "{fd}>", "2>>", "0<", "<(", ">(", "\u00b2>", "x>", "3>&1 4>", "\\2>", "'2'>")
TARGETS = (
    "out",
    "out",
    "f",
    "d/out",
    "./out",
    "/jail/out",
    "/dev/null",
    "/dev/null",
    "&1",
    "&-",
    "1",
    "2",
    "-",
    "$X",
)
TARGETS += (
    "'out'",
    '"out"',
    "o\\ut",
    "out*",
    "{a,b}",
    "~",
    "bad",
    "&2",
    "&bad",
    "/dev/tcp/127.0.0.1/1",
    "$(ok)",
    "ok bad",
)
BLANKS = (" ",) * 30 + (
    "  ",
    "\t",
    " \\\n",
    "\\\n",
    " \\\n ",
    "\n",
    "\r",
    "\x0b",
    "\u00a0",
    "",
    " #",
    "\f",
    "\\ ",
)
EXPANSIONS = (
    "$X",
    "${X}",
    "$Z",
    '"$X"',
    '"${X}"',
    "$Y",
    "$?",
    "$#",
    "$1",
    "$@",
    '"$@"',
    "$$",
    "$!",
    "$-",
    "$10",
)
EXPANSIONS += (
    "${X:-bad}",
    "${X#b}",
    "${!X}",
    "$((1+1))",
    "$[1]",
    "$'bad'",
    '$"bad"',
    "`bad`",
    '"`bad`"',
    "${X[0]}",
)
EXPANSIONS += (
    "$((a[$(bad)]))",
    "${Y:-$(bad)}",
    "$",
    "$\\\n(bad)",
    '"$\\\n(bad)"',
    "$X\\\n",
    "\\$X",
    "\\$(bad)",
    "'$(bad)'",
)
PIECES = tuple(
    sorted(
        {*LITERALS, *RARE_WORDS, *OPERATORS, *REDIRECTIONS, *BLANKS, *EXPANSIONS, "'", '"', "\\", "(", ")"}
    )
)
PIECES += (
    "$(",
    "${",
    "`",
    "((",
    "))",
    "\\\n",
    "\n",
    "#",
    "<<E\n",
    "\nE\n",
    "=",
    "+=",
    "*",
    "&",
    ";",
    "|",
    "<",
    ">",
)


class Grammar:
    """Makes commands: mostly what people write, sometimes what nobody would."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._depth = 0

    def command(self) -> str:
        self._depth = 0
        text = self._list()
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 4))):
            text = self._mutated(text)
        return text

    def _one(self, choices: Sequence[str]) -> str:
        return self._random.choice(choices)

    def _rarely(self, share: float) -> bool:
        return self._random.random() < share

    def _blank(self) -> str:
        return self._one(BLANKS) if self._rarely(0.15) else " "

    def _list(self) -> str:
        text = self._item()
        while self._rarely(0.4):
            text += self._glue() + self._one(OPERATORS) + self._glue() + self._item()
        return text + (
            self._one((" #bad", "\n#x\n", ";", "&", " # ' \n", "\n")) if self._rarely(0.08) else ""
        )

    def _glue(self) -> str:
        return self._blank() if self._rarely(0.7) else ""

    def _item(self) -> str:
        if self._depth > 3 or self._rarely(0.8):
            return self._simple()
        self._depth += 1
        inner, other = self._list(), self._simple()
        self._depth -= 1
        forms = (
            f"({inner})",
            f"( {inner} )",
            f"{{ {inner}; }}",
            f"! {inner}",
            f"if {other}; then {inner}; fi",
            f"if {other}; then {inner}; else {other}; fi",
            f"while no; do {inner}; done",
            f"until ok; do {inner}; done",
            f"cd d && {inner}",
            f"cd d; {inner}",
            f"({inner}) > out",
            f"{{ {inner}; }} 2>&1",
            f"for v in {other}; do {inner}; done",
            f"case ok in ok) {inner};; esac",
            f"f() {{ {inner}; }}; f",
            f"function f {{ {inner}; }}; f",
            f"time {inner}",
            f"alias x=bad\n{inner}",
            f"ok <<E\n{inner}\nE\n{other}",
            f"[[ x == $({inner}) ]]",
            f"(( a[$({inner})] ))",
            f"{other} | while read v; do {inner}; done",
        )
        return self._one(forms[:10] if self._rarely(0.7) else forms)

    def _simple(self) -> str:
        words = (
            [self._one(("FOO=1", "A=$X", "PATH=.", "B='x y'", "A+=1", "C=$(ok)"))]
            if self._rarely(0.06)
            else []
        )
        words += [self._one(LITERALS[:8]) if self._rarely(0.8) else self._word()]
        words += [self._word() for _ in range(self._random.choice((0, 1, 1, 2, 3)))]
        if self._rarely(0.25):
            redirection = self._one(REDIRECTIONS[:9] if self._rarely(0.7) else REDIRECTIONS)
            target = self._one(TARGETS[:8] if self._rarely(0.7) else TARGETS)
            words.insert(self._random.randint(0, len(words)), redirection + self._one(("", " ")) + target)
        text = words[0]
        for word in words[1:]:
            text += self._blank() + word
        return text

    def _word(self) -> str:
        kind = self._random.random()
        if kind < 0.6:
            return self._one(LITERALS)
        if kind < 0.7:
            return self._one(EXPANSIONS[:13] if self._rarely(0.7) else EXPANSIONS)
        if kind < 0.76:
            return self._one(RARE_WORDS)
        if kind < 0.82 and self._depth < 3:
            self._depth += 1
            inner = self._list()
            self._depth -= 1
            return self._one(
                (f"$({inner})", f'"$({inner})"', f'"a $({inner}) b"', f"`{inner}`", f"<({inner})")
            )
        if kind < 0.9:
            quoted = self._one(
                (
                    "x;bad",
                    "x bad",
                    "bad",
                    "$(bad)",
                    "`bad`",
                    "&& bad",
                    "> out",
                    "#",
                    "\\",
                    "!",
                    "a\nb",
                    "\u00e9",
                )
            )
            return self._one(("'{}'", '"{}"', "x'{}'", "\\{}", "''{}", '"{}"x', "'{}'\\\n")).format(quoted)
        return (
            self._one(LITERALS)
            + self._one(("", "''", "\\", '""', "$X", "*", "'x'", "=", "\\\n"))
            + self._one(LITERALS)
        )

    def _mutated(self, text: str) -> str:
        at = self._random.randint(0, len(text))
        to = min(len(text), at + self._random.choice((0, 0, 1, 1, 2, 5)))
        kind = self._random.random()
        if kind < 0.6:
            return text[:at] + self._one(PIECES) + text[to:]
        if kind < 0.8:
            return text[:at] + text[to:]
        start = self._random.randint(0, len(text))
        return text[:at] + text[start : start + self._random.randint(1, 8)] + text[at:]


# Where it is tried.


def can_jail() -> bool:
    """Whether this machine has both shells and lets us make namespaces."""
    if not all(map(shutil.which, ("dash", "bash", "ldd"))) or sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with jailed(Path(folder)) as run:
                return run("dash", "ok").ran == [["/bin/ok"]]
        except OSError:
            return False


def _build(root: Path) -> None:
    for name in ("shell", "bin", "jail", "log", "dev", "tmp"):
        (root / name).mkdir()
    for shell in ("dash", "bash"):
        found = shutil.which(shell)
        assert found is not None
        shutil.copy(os.path.realpath(found), root / "shell" / shell)
        listed = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
    for name in PROGRAMS:
        (root / "bin" / name).write_text(STUB)
        (root / "bin" / name).chmod(0o755)
    (root / "dev" / "null").touch()


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    given = [each.encode() if isinstance(each, str) else each for each in arguments]
    if getattr(libc, name)(*given) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _enter(root: Path) -> None:
    """New namespaces; the next child is the first process of its own."""
    user, group = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    _call("unshare", flags if user == 0 else flags | CLONE_NEWUSER)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _call("mount", "none", "/", None, MS_REC | MS_PRIVATE, None)
    _call("mount", str(root), str(root), None, MS_BIND, None)
    _call("mount", "/dev/null", str(root / "dev" / "null"), None, MS_BIND, None)
    for name in ("jail", "log"):
        _call("mount", "tmpfs", str(root / name), "tmpfs", 0, None)
    _call("mount", "none", str(root), None, MS_BIND | MS_REMOUNT | MS_RDONLY, None)
    os.chroot(root)
    os.chdir("/jail")


def _serve(asks: socket.socket) -> None:
    """Runs what it is told, as the first process of the jail."""
    with asks.makefile("rw", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            shell, command = json.loads(line)
            lines.write(json.dumps(_ran(shell, command)) + "\n")
            lines.flush()


def _fresh() -> None:
    for entry in os.scandir("/jail"):
        shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else Path(entry).unlink()
    Path("/jail/d").mkdir()
    for place in ("/jail/bad", "/jail/d/bad"):
        Path(place).symlink_to("/bin/bad")
    Path("/jail/f").write_text("seen")
    Path("/log/ran").write_text("")


def _listing() -> dict[str, object]:
    found: dict[str, object] = {}
    for folder, folders, names in os.walk("/jail"):
        for name in names:
            path = f"{folder}/{name}"
            found[path] = os.lstat(path).st_size, os.lstat(path).st_mtime_ns
        found |= {f"{folder}/{name}": None for name in folders}
    return found


def _ran(shell: str, command: str) -> dict[str, object]:
    _fresh()
    before = _listing()
    program, called = SHELLS[shell]
    null = [(os.POSIX_SPAWN_OPEN, each, "/dev/null", os.O_RDWR, 0) for each in (0, 1, 2)]
    child = os.posix_spawn(f"/shell/{program}", [called, "-c", command], ENVIRONMENT, file_actions=null)
    timed_out = _end_all(child)
    calls = Path("/log/ran").read_bytes().decode(errors="surrogateescape").split("\0\037END\0")[:-1]
    after = _listing()
    wrote = [path for path in after if after[path] != before.get(path, "")]
    return {"ran": [call.split("\0") for call in calls], "wrote": wrote, "timed_out": timed_out}


def _end_all(child: int) -> bool:
    """Waits for the shell and all it left behind; True when it had to end some of them."""
    late = time.monotonic() + PATIENCE_S
    descriptor = os.pidfd_open(child)
    select.select([descriptor], [], [], PATIENCE_S)
    os.close(descriptor)
    killed = False
    while True:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if not found and time.monotonic() > late and not killed:
            killed = True
            os.kill(-1, signal.SIGKILL)
        elif not found:
            time.sleep(0.0005)


class Jail:
    """The near end: asks what a shell does with a command."""

    def __init__(self, answers: socket.socket) -> None:
        self._lines = answers.makefile("rw", encoding="utf-8", newline="\n")

    def __call__(self, shell: str, command: str) -> Effects:
        self._lines.write(json.dumps([shell, command]) + "\n")
        self._lines.flush()
        answer = self._lines.readline()
        if not answer:
            raise OSError("the jail is gone")
        return Effects(**json.loads(answer))


@contextmanager
def jailed(folder: Path) -> Iterator[Jail]:
    """A jail in an empty folder. Raises OSError where namespaces are not to be had."""
    root = folder / "jail"
    root.mkdir()
    _build(root)
    near, far = socket.socketpair()
    outer = os.fork()
    if outer == 0:
        status = 1
        try:
            near.close()
            _enter(root)
            inner = os.fork()
            if inner == 0:
                _serve(far)
                os._exit(0)
            far.close()
            os.waitpid(inner, 0)
            status = 0
        except OSError as error:
            print(f"no jail: {error}", file=sys.stderr)
        finally:
            os._exit(status)
    far.close()
    try:
        yield Jail(near)
    finally:
        near.shutdown(socket.SHUT_RDWR)
        near.close()
        os.waitpid(outer, 0)


# Whether it was judged.


def try_one(command: str, jail: Jail, shells: Sequence[str] = tuple(SHELLS)) -> Found:
    """What a command came to in each shell, when the policy allows it."""
    found = Found()
    found.counts["commands"] += 1
    if READABLE.decide("bash", {"command": command}).action is not Action.ALLOW:
        return found
    found.counts["allowed"] += 1
    by_default = DEFAULT.decide("bash", {"command": command}).action is Action.ALLOW
    found.counts["allowed_by_default"] += by_default
    try:
        parts = split(command)
    except Opaque as error:
        found.unjudged.append(("reader", command, f"the policy allows what is opaque: {error}"))
        return found
    for shell in shells:
        effects = jail(shell, command)
        found.counts[f"{shell}_runs"] += 1
        found.counts[f"{shell}_programs"] += len(effects.ran)
        found.counts[f"{shell}_files"] += len(effects.wrote)
        found.counts[f"{shell}_stopped"] += effects.timed_out
        found.unjudged += [(shell, command, what) for what in unjudged(parts, effects, by_default=by_default)]
    return found


def unjudged(parts: Sequence[Part], effects: Effects, *, by_default: bool) -> Iterator[str]:
    for words in effects.ran:
        if not any(_names(part, words) for part in parts):
            yield f"ran {words}"
        called = [words[0].removeprefix("/bin/"), *words[1:]]
        if by_default and DEFAULT.decide("bash", {"command": shlex.join(called)}).action is not Action.ALLOW:
            yield f"ran {words}, which is not allowed by default"
    targets = [each.word for part in parts for each in part.redirections if each.writes and each.word]
    for path in effects.wrote:
        if by_default or not any(word.value is None or _leads(word.value, path) for word in targets):
            yield f"wrote {path}"


def _leads(target: str, path: str) -> bool:
    """Whether the target of a redirection, from one of the two folders there are, is the file."""
    return path in {
        os.path.normpath("/" + target.lstrip("/") if target.startswith("/") else f"{place}/{target}")
        for place in ("/jail", "/jail/d")
    }


def _names(part: Part, words: Sequence[str]) -> bool:
    """Whether a program with these words is what the part says."""
    if not part.program:
        return False
    known = [
        re.escape(word.value) + "\0" if word.value is not None else "(?:[^\0]*\0)*" for word in part.program
    ]
    return re.fullmatch("(?:/bin/)?" + "".join(known), "\0".join(words) + "\0", re.DOTALL) is not None


def shrunk(command: str, jail: Jail) -> str:
    """The shortest command found by leaving out pieces that still does something unjudged."""
    size = max(1, len(command) // 2)
    while size:
        for at in range(len(command)):
            shorter = command[:at] + command[at + size :]
            if len(shorter) < len(command) and try_one(shorter, jail).unjudged:
                command = shorter
                break
        else:
            size //= 2
    return command


def _batch(job: tuple[int, int]) -> Found:
    seed, count = job
    os.nice(10)
    found = Found()
    grammar = Grammar(seed)
    with tempfile.TemporaryDirectory(prefix="ostinato-fuzz-") as folder, jailed(Path(folder)) as jail:
        for _ in range(count):
            found.add(try_one(grammar.command(), jail))
        found.unjudged = [
            (shell, shrunk(command, jail), what) for shell, command, what in found.unjudged[:20]
        ]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    found.counts["cpu_ms"] = round(1000 * sum(each.ru_utime + each.ru_stime for each in used))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shell_fuzz", description=__doc__)
    parser.add_argument("--commands", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object, last line of the output")
    options = parser.parse_args()
    started, total, size = time.monotonic(), Found(), 500
    whole, rest = divmod(options.commands, size)
    jobs = [(options.seed * 1_000_003 + at, size) for at in range(whole)] + [
        (options.seed * 1_000_003 + whole, rest)
    ] * bool(rest)
    with get_context("spawn").Pool(options.processes, maxtasksperchild=1) as pool:
        for done, found in enumerate(pool.imap_unordered(_batch, jobs), 1):
            total.add(found)
            print(f"{done}/{len(jobs)} batches, {len(total.unjudged)} unjudged", file=sys.stderr, flush=True)
    for shell, command, what in total.unjudged[:50]:
        print(f"{shell}: {command!r} {what}")
    counts = {name: total.counts[name] for name in ("commands", "allowed", "allowed_by_default")}
    each = {
        shell: {what: total.counts[f"{shell}_{what}"] for what in ("runs", "programs", "files", "stopped")}
        for shell in SHELLS
    }
    for shell, figures in each.items():
        figures["unjudged"] = sum(name == shell for name, _, _ in total.unjudged)
    seconds = {"seconds": round(time.monotonic() - started, 1), "cpu_seconds": total.counts["cpu_ms"] / 1000}
    row = {**counts, "unjudged": len(total.unjudged), **seconds, "shells": each}
    print(json.dumps(row) if options.json else "\n".join(f"{name}: {value}" for name, value in row.items()))
    return int(bool(total.unjudged))


if __name__ == "__main__":
    sys.exit(main())
