"""Random shell commands: mostly what people write, sometimes what nobody would, then a few mutations."""

import random
from collections.abc import Sequence

LITERALS = (
    "ok", "ok", "ok", "x", "bad", "no", "ls", "git", "make", "status", "diff", "log", "push", "-s", "d",
    "1", "2", "12", "./bad", "/bin/bad", "d/bad", "a=b", "FOO=1", "A+=1", "PATH=.", "X=ok", "true", "echo",
    "pwd", "test", "[", "]", "printf", ":", "--", "-", "=", "#x", "a#b", "$", "!", "%", ",", "@", "^", "..",
)  # fmt: skip
RARE_WORDS = (
    "time", "in", "if", "do", "done", "{", "}", "[[", "]]", "case", "esac", "for", "function", "coproc",
    "select", "then", "fi", "else", "while", "until", "eval", "exec", "command", "builtin", "export", "set",
    "alias", "unset", ".", "source", "trap", "read", "let", "declare", "local", "wait", "hash", "\xb2",
    "\xe9", "x\xa0y", "-v", "a[$(bad)]", "a[0]=x", "~", "~/x", "*", "?", "[a-z]*", "{ok,bad}", "{1..2}",
)  # fmt: skip
OPERATORS = (
    ";", ";", "&&", "||", "|", "&", "\n", ";;", "|&", "&>", ";&", "\n\n", "& ", " ;", "!",
)  # fmt: skip
REDIRECTIONS = (
    ">", ">", ">>", "<", ">|", "2>", "2>&1 >", "1>", ">&", "<&", "<>", "&>", "&>>", "<<", "<<-", "<<<",
    "12>", "{fd}>", "2>>", "0<", "<(", ">(", "\xb2>", "x>", "3>&1 4>", "\\2>", "'2'>",
)  # fmt: skip
TARGETS = (
    "out", "out", "f", "d/out", "./out", "/jail/out", "/dev/null", "/dev/null", "&1", "&-", "1", "2", "-",
    "$X", "'out'", '"out"', "o\\ut", "out*", "{a,b}", "~", "bad", "&2", "&bad", "/dev/tcp/127.0.0.1/1",
    "$(ok)", "ok bad",
)  # fmt: skip
EXPANSIONS = (
    "$X", "${X}", "$Z", '"$X"', '"${X}"', "$Y", "$?", "$#", "$1", "$@", '"$@"', "$$", "$!", "$-", "$10",
    "${X:-bad}", "${X#b}", "${!X}", "$((1+1))", "$[1]", "$'bad'", '$"bad"', "`bad`", '"`bad`"', "${X[0]}",
    "$((a[$(bad)]))", "${Y:-$(bad)}", "$", "$\\\n(bad)", '"$\\\n(bad)"', "$X\\\n", "\\$X", "\\$(bad)",
    "'$(bad)'",
)  # fmt: skip
RARE_BLANKS = (
    "  ", "\t", " \\\n", "\\\n", " \\\n ", "\n", "\r", "\x0b", "\xa0", "", " #", "\x0c", "\\ ",
)  # fmt: skip
BLANKS = (" ",) * 30 + RARE_BLANKS
QUOTED = ("x;bad", "x bad", "bad", "$(bad)", "`bad`", "&& bad", "> out", "#", "\\", "!", "a\nb", "\u00e9")
SIGNS = ("'", '"', "\\", "(", ")")
PIECES = tuple(sorted({*LITERALS, *RARE_WORDS, *OPERATORS, *REDIRECTIONS, *BLANKS, *EXPANSIONS, *SIGNS}))
MORE_PIECES = (
    "$(", "${", "`", "((", "))", "\\\n", "\n", "#", "<<E\n", "\nE\n", "=", "+=", "*", "&", ";", "|", "<",
    ">",
)  # fmt: skip
PIECES += MORE_PIECES


class Grammar:
    """The grammar of random commands; the same seed makes the same commands."""

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
            quoted = self._one(QUOTED)
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
