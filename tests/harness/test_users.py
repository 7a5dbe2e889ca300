import io

import pytest
from rich.console import Console

from ostinato.harness.errors import UserAborted
from ostinato.harness.users import ScriptedUser, SilentUser, TerminalUser


async def test_a_script_answers_in_order_and_then_declines() -> None:
    user = ScriptedUser(["one"])
    assert await user.answer("first?") == "one"
    with pytest.raises(UserAborted):
        await user.answer("second?")
    assert user.questions == ["first?", "second?"]


async def test_nobody_leaves_the_decision_to_the_agent() -> None:
    assert "decide yourself" in await SilentUser().answer("which?")


async def test_a_person_answers_or_declines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    user = TerminalUser(Console(file=screen))
    monkeypatch.setattr("sys.stdin", io.StringIO(" use +\n\n"))
    assert await user.answer("which [one]?") == "use +"
    assert "which [one]?" in screen.getvalue()
    for _ in ("an empty line", "end of input"):
        with pytest.raises(UserAborted):
            await user.answer("and?")
