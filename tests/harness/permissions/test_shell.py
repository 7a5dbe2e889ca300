import pytest

from ostinato.harness.permissions.shell import UNKNOWN, Opaque, split


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("ls", ["ls"]),
        ("a && b || c ; d | e & f\ng", ["a", "b", "c", "d", "e", "f", "g"]),
        ("(a; b) && { c; }", ["a", "b", "c"]),
        ("echo $(rm x) $(id)", ["rm x", "id", "echo $(rm x) $(id)"]),
        ('echo "$(rm $(id))"', ["id", "rm $(id)", 'echo "$(rm $(id))"']),
        ("FOO=1 BAR='2 3' make all", ["FOO=1 BAR='2 3' make all"]),
        ("a > out 2>&1 < 'in put'", ["a > out 2>& 1 < 'in put'"]),
        ("git 'status; rm -rf /'", ["git 'status; rm -rf /'"]),
        ('g"i"t  st\\atus', ["git status"]),
        ("ls # rm\nrm x", ["ls", "rm x"]),
        ("echo a#b '#'", ["echo 'a#b' '#'"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while ! a; do b; done | c", ["a", "b", "c"]),
        ("a \\\n  b", ["a b"]),
        ("rm *.py '*.py'", ["rm *.py '*.py'"]),
        ("[ -f x ] && cat x", ["[ -f x ]", "cat x"]),
        ("echo '$HOME' $HOME \"a $x\"", ["echo '$HOME' $HOME \"a $x\""]),
        ("'if' a", ["if a"]),
        ("X=1", ["X=1"]),
        ("# nothing", []),
    ],
)
def test_every_simple_command_is_found(command: str, parts: list[str]) -> None:
    assert [part.text.strip() for part in split(command)] == parts


@pytest.mark.parametrize(
    "command",
    [
        "$X y",
        "`a` b",
        "*/run",
        "f() { a; }",
        "a=(b c)",
        "for x in a; do b; done",
        "case a in b) c;; esac",
        "cat <<EOF\n$(rm x)\nEOF",
        "cat <<< x",
        "diff <(a) b",
        "((x=1))",
        "echo $((x[$(rm y)]))",
        "echo ${x:-$(rm y)}",
        "echo $'a\\x3b'",
        'echo "$\\\n(rm x)"',
        "echo `echo \\`rm x\\``",
        "'FOO=1' a",
        "(a) b",
        "{ a; } > x",
        "a 'b",
        'a "b',
        "a $(b",
        "a )",
        "a \\",
        "a >",
        "ls\rrm x",
        "ls\u00a0x",
        "ls \u202e x",
        "coproc a",
        "ls &>/dev/null rm x",
        "ls &>>x",
        "ls |& rm x",
        "ls >&x",
        "ls >&2- x",
        "ls 12>x",
        "ls {fd}>x",
        "ls > 1>x",
        "\u00b2>x ls",
        "A+=1 ls",
        "A=1 B+=1 ls",
        "ls &\\\n>/dev/null rm x",
        "ls $X\\\ny",
        "ls 'a'\\\nb",
        'ls "a\\\nb"',
        "ls;\\\nrm x",
        "echo `rm x`",
        'echo "`rm x`"',
        "echo $(ls # )\n)",
        "echo \u00e9",
        "echo \\\u00e9",
        "printf -v 'a[$(rm x)]' y",
        "[ -v 'a[$(rm x)]' ]",
        'test -v "$(cat x)"',
        "unset 'a[$(rm x)]'",
        "time ls",
        "eval ls",
        ". ./x",
        "command ls",
        "exec ls",
        "PATH=. ls",
        "GIT_EXTERNAL_DIFF=rm git diff",
        "A=1 PAGER=rm git log",
        "LD_PRELOAD=./x.so ls",
        "ls > /dev/tcp/127.0.0.1/80",
        "ls &&>x",
        "ls <&x",
        "a" * 70_000,
        "(" * 5_000,
        "echo " + "$(" * 5_000,
        "[[ -f x ]]",
    ],
)
def test_what_only_the_shell_knows_is_opaque(command: str) -> None:
    with pytest.raises(Opaque):
        split(command)


def test_redirections_name_what_they_open() -> None:
    (part,) = split("a >> log 2>/dev/null <in >&2 >|all")
    assert [found.target for found in part.redirections] == ["> log", None, "< in", None, "> all"]


def test_a_shape_keeps_what_is_sure() -> None:
    (part,) = split("a 'b c'/$X.py *.py \"d\" X=$Y{1,2}")
    assert part.shape == f"a b c/{UNKNOWN}.py {UNKNOWN}.py d X={UNKNOWN}"
