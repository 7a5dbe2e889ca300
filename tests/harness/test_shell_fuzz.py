"""Covers harness/permissions/shell.py: a few hundred random commands, and proof that the fuzz would notice.

`benchmarks/shell_fuzz.py` runs a hundred thousand.
"""

from collections.abc import Iterator

import pytest
from fuzz.shell import Tally, try_one, unjudged
from fuzz.shell_grammar import Grammar
from fuzz.shell_jail import SHELLS, Effects, Jail, can_jail, jailed

from ostinato.harness.permissions.shell import split

COMMANDS = 400


@pytest.fixture(scope="module")
def jail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jail]:
    if not can_jail():
        pytest.skip("needs dash, bash and namespaces")
    with jailed(tmp_path_factory.mktemp("fuzz")) as jail:
        yield jail


def test_nothing_runs_that_was_not_judged(jail: Jail) -> None:
    grammar, tally = Grammar(11), Tally()
    for _ in range(COMMANDS):
        tally.add(try_one(grammar.command(), jail))
    assert not tally.unjudged
    assert tally.counts["allowed"] > COMMANDS / 5
    assert all(tally.counts[f"{shell}_programs"] > COMMANDS / 10 for shell in SHELLS)
    assert all(tally.counts[f"{shell}_files"] > 0 for shell in SHELLS)


@pytest.mark.parametrize(
    ("shell", "command", "ran"),
    [
        ("dash", "ls &>/dev/null bad", ["/bin/bad"]),
        ("bash", "ls $'-s'", ["/bin/ls", "-s"]),
        ("bash_as_sh", "ok {a,}", ["/bin/ok", "a"]),
        ("dash", "ok 12>f", ["/bin/ok", "12"]),
        ("dash", "cd d && ./bad x", ["./bad", "x"]),
        ("bash", "(/bin/bad & )", ["/bin/bad"]),
        ("bash", "[ -v 'a[$(bad)]' ]", ["/bin/bad"]),
    ],
)
def test_the_jail_notes_programs_that_run(jail: Jail, shell: str, command: str, ran: list[str]) -> None:
    effects = jail(shell, command)
    assert ran in effects.ran
    assert list(unjudged(split("ls x"), effects, by_default=False)), "it was not judged"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_jail_notes_files_that_are_written(jail: Jail, shell: str) -> None:
    effects = jail(shell, "ok > d/out; : > f; cd d; : > /jail/new")
    assert sorted(effects.wrote) == ["/jail/d/out", "/jail/f", "/jail/new"]
    assert not list(unjudged(split("ok > d/out; : > f; : > /jail/new"), effects, by_default=False))
    others = unjudged(split("ok > d/out"), effects, by_default=False)
    assert sorted(others) == ["wrote /jail/f", "wrote /jail/new"]
    assert jail(shell, "ok > /tmp/x").wrote == []


def test_by_default_a_program_is_judged_by_itself() -> None:
    effects = Effects(ran=[["/bin/git", "status"], ["/bin/git", "push"]], wrote=[])
    reasons = list(unjudged(split("git status; git push"), effects, by_default=True))
    assert reasons == ["ran ['/bin/git', 'push'], which is not allowed by default"]
