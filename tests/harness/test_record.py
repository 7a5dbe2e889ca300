from pathlib import Path

import pytest
from tests.harness.record import recorded

PAGE = Path(__file__).parents[2] / "docs" / "code.md"


@pytest.mark.slow
async def test_the_recorded_session_is_what_the_program_does() -> None:
    assert f"```\n{await recorded()}\n```" in PAGE.read_text()
