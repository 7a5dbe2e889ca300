"""To-dos left open and repeated reads: what is planted is found, and honest work is left alone."""

from tests.rewards.builders import call, renderer, session

from ostinato.rewards.parts.hygiene import open_todos, repeated_reads
from ostinato.rewards.parts.work import Work, work_of
from ostinato.types import Turn

READ, OTHER = call("read", path="a.py"), call("read", path="a.py", offset=9)
EDIT = call("edit", path="a.py", old_string="x", new_string="y")


def plan(**steps: str) -> tuple[str, list[str]]:
    todos = [{"content": name, "status": status} for name, status in steps.items()]
    return call("todo_write", todos=todos), ["ok"]


def work(*steps: tuple[str, list[str]]) -> Work:
    turns: list[Turn] = session(*steps, ("done", []))
    return work_of(turns, (), renderer())


def test_open_todos_are_found_and_closed_ones_are_not() -> None:
    left = open_todos(work(plan(a="in_progress", b="pending"), plan(a="completed", b="pending")))
    assert (left.value, left.evidence) == (0.5, ("s/1",))
    assert open_todos(work(plan(a="pending"), plan(a="completed"))).value == 0
    assert open_todos(work(plan(a="pending"), plan(a="cancelled"))).value == 0
    assert open_todos(work((READ, ["x"]))).value == 0


def test_a_todo_that_vanishes_from_the_list_counts_as_open() -> None:
    assert open_todos(work(plan(a="pending", b="pending"), plan(a="completed"))).value == 0.5
    assert open_todos(work(plan(a="pending"), plan())).value == 1.0


def test_the_plan_of_another_dialect_is_read() -> None:
    step = (call("update_plan", plan=[{"step": "a", "status": "pending"}]), ["ok"])
    assert open_todos(work(step)).value == 1.0


def test_repeated_reads_are_found_and_honest_ones_are_not() -> None:
    again = repeated_reads(work((READ, ["x"]), (OTHER, ["x"]), (READ, ["x"])))
    assert (again.value, again.evidence) == (1 / 3, ("s/2",))
    assert repeated_reads(work((READ, ["x"]), (OTHER, ["x"]))).value == 0
    assert repeated_reads(work((READ, ["x"]), (EDIT, ["ok"]), (READ, ["y"]))).value == 0
    assert repeated_reads(work()).value == 0
