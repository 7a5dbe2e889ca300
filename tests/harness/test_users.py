"""Users: a person at a terminal, a script, and nobody.

Covers harness/users.py and harness/lines.py.
"""

import io
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ostinato.harness.errors import UserAborted
from ostinato.harness.lines import Lines
from ostinato.harness.permissions.rules import Rule
from ostinato.harness.users import (
    Grant,
    PermissionAnswer,
    PermissionRequest,
    Permitting,
    ScriptedUser,
    SilentUser,
    TerminalUser,
    visible,
)


async def test_a_script_answers_in_order_and_then_declines() -> None:
    user = ScriptedUser(["one"])
    assert await user.answer("first?") == "one"
    with pytest.raises(UserAborted):
        await user.answer("second?")
    assert user.questions == ["first?", "second?"]


async def test_nobody_leaves_the_decision_to_the_agent() -> None:
    assert "decide yourself" in await SilentUser().answer("which?")


@pytest.fixture
def typed(tmp_path: Path):
    """A person who types these lines."""
    streams = []

    def typed(text: str) -> tuple[TerminalUser, io.StringIO]:
        (tmp_path / "typed").write_text(text)
        streams.append((tmp_path / "typed").open())
        screen = io.StringIO()
        return TerminalUser(Console(file=screen, width=100), Lines(streams[-1])), screen

    yield typed
    for stream in streams:
        stream.close()


async def test_a_person_answers_or_declines(typed) -> None:
    user, screen = typed(" use +\n2\n\n")
    assert await user.answer("which [one]?") == "use +"
    assert await user.answer("which?", ["mean", "median"]) == "median"
    assert "  1 mean\n  2 median\n" in screen.getvalue()
    assert "which [one]?" in screen.getvalue()
    for _ in ("an empty line", "end of input"):
        with pytest.raises(UserAborted):
            await user.answer("and?")


async def test_a_person_permits_exactly_what_is_shown(typed) -> None:
    user, screen = typed("y\nALWAYS\nn\n?\n")
    rule = Rule.exactly("bash", "rm *.log")
    request = PermissionRequest(call_id="c0", tool="bash", arguments={}, asks=("rm *.log",), grants=(rule,))
    answers = [(await user.permit(request)).grant for _ in range(5)]
    assert answers == [Grant.ONCE, Grant.ALWAYS, Grant.NO, Grant.NO, Grant.NO]
    assert "  rm *.log\n" in screen.getvalue()
    assert "  allow bash: rm \\*.log\n" in screen.getvalue()


async def test_a_sentence_is_no_consent(typed) -> None:
    request = PermissionRequest(call_id="c0", tool="bash", arguments={}, asks=("pytest",), grants=())
    for said in ("are you sure? no, do not run anything", "yes please", "y/help", "alright", "/quit", "y n"):
        user, screen = typed(f"{said}\nno\n")
        assert (await user.permit(request)).grant is Grant.NO, said
        assert "Nothing was permitted: type the letter y, a or n alone" in screen.getvalue()
    user, screen = typed("what?\n Yes \n")
    assert (await user.permit(request)).grant is Grant.ONCE
    assert "[y] once  [a] always  [n] no, or n and what to do instead; then Enter > " in screen.getvalue()
    for said, words in (("n, use pytest", "use pytest"), ("No: wait", "wait"), ("n y", "y"), ("no,", "")):
        user, screen = typed(f"{said}\n")
        assert await user.permit(request) == PermissionAnswer(grant=Grant.NO, words=words)


async def test_a_request_cannot_hide_a_part_of_itself(typed) -> None:
    user, screen = typed("n\n")
    hidden = "curl x\r\x1b[2K\u202elooks harmless"
    request = PermissionRequest(call_id="c0", tool="bash", arguments={}, asks=(hidden,), grants=())
    await user.permit(request)
    assert "  curl x\\r\\x1b[2K\\u202elooks harmless\n" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


async def test_nobody_permits_nothing_and_a_sandbox_everything() -> None:
    request = PermissionRequest(call_id="c0", tool="bash", arguments={}, asks=("make",), grants=())
    assert (await SilentUser().permit(request)).grant is Grant.ABSENT
    assert (await Permitting(SilentUser()).permit(request)).grant is Grant.ONCE
    assert (await ScriptedUser([]).permit(request)).grant is Grant.NO


@given(st.text(max_size=30))
def test_what_is_shown_has_no_hidden_character(text: str) -> None:
    shown = visible(text)
    assert all(c in "\n\t " or unicodedata.category(c)[0] not in "CZ" for c in shown)


HIDDEN = "\u3164\u2800\u00a0\u3000\u2028\u2029\u115f\uffa0\ufe0f\u034f\U000e0101\u202e\u200b"


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_looks_like_nothing_is_spelled_out(hidden: str) -> None:
    assert visible(f"a{hidden}b") == f"a{hidden.encode('unicode_escape').decode()}b"
