import io
import threading
import time

from rich.console import Console
from rich.progress import Progress

from ostinato.loop.show import Bar, Show


class Lines(io.StringIO):
    """Text output that wakes a test at each new line."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Condition()

    def write(self, text: str) -> int:
        with self.came:
            self.came.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self.came:
            assert self.came.wait_for(lambda: text in self.getvalue(), timeout=60)


def test_a_long_stage_without_a_terminal_says_how_far_it_is() -> None:
    lines = Lines()
    show = Show(Console(file=lines, width=100), longest_silence_s=0.01)
    with show.heartbeat():
        lines.wait_for("starting what the next stage needs")
        with show.stage("bench", total=4) as bar:
            bar.more("1 solved")
            lines.wait_for("bench: 25%  1 solved")
    written = lines.getvalue()
    show.say("the end")
    assert "bench                        1 solved" in written
    assert lines.getvalue().count("\n") == written.count("\n") + 1  # the heartbeat has ended


def test_a_line_that_says_nothing_new_comes_ever_more_rarely() -> None:
    lines = Lines()
    show = Show(Console(file=lines, width=100), longest_silence_s=0.01)
    with show.heartbeat(), show.stage("people", total=4) as bar:
        bar.at(0, "0 of 4 sessions")
        time.sleep(1.0)
        said = lines.getvalue().count("0 of 4 sessions")
        bar.at(1, "1 of 4 sessions")
        lines.wait_for("people: 25%")
    assert 2 <= said <= 8, "after 1, 2, 4 … hundredths of a second, not a hundred times"


def test_on_a_terminal_the_bar_is_enough() -> None:
    lines = Lines()
    show = Show(Console(file=lines, width=100, force_terminal=True), longest_silence_s=0.0)
    with show.heartbeat(), show.stage("bench", total=1) as bar:
        bar.at(1, "done")
    assert "starting what the next stage needs" not in lines.getvalue()
    assert "bench:" not in lines.getvalue()


def test_the_time_left_follows_from_the_speed_since_the_first_news() -> None:
    now = [100.0]
    bar = Bar("bench", 50, Progress(), lambda: now[0])
    assert bar.summary == "bench: 0%"
    bar.at(20)  # a stage that goes on from where it was stopped
    assert bar.left == ""
    now[0] += 60
    bar.at(25, "11 solved")
    assert bar.summary == "bench: 50%, about 5 min left  11 solved"
    now[0] += 60 * 60 * 7
    bar.more()
    assert bar.left == "about 28 h left"
    now[0] = 101.0
    bar.at(45)
    assert bar.left == "about 1 s left"
    bar.at(50)
    assert bar.summary == "bench: 100%  11 solved"
