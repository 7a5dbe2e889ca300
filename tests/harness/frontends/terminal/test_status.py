"""The line at the bottom, wide and narrow."""

from ostinato.harness.frontends.terminal.status import ALARM, Activity, status


def test_the_activity_counts_what_came() -> None:
    assert (
        Activity(doing="thinking", since=1.0, pieces=1_200)
        .words(3.0)
        .endswith("thinking 2 s, about 1,200 tokens")
    )
    assert Activity(doing="waits", moves=False).words(9.0) == "waits"


def test_a_full_context_is_told_by_a_bar_and_a_narrow_line_leaves_it_out() -> None:
    wide = status("abc", "9 of 10 tokens", ALARM, "thinking", 80)
    assert wide.plain == "session abc · ▰▰▰▰▰▰▰▰▰▱ 9 of 10 tokens · thinking"
    assert "bold red" in {str(span.style) for span in wide.spans}
    assert status("abc", "9 of 10 tokens", ALARM, "thinking", 40).plain == "9 of 10 tokens · thinking"
