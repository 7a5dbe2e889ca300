"""A fault of practice: commands that ask a database for everything. Its price stands in fault.toml."""

import ostinato as o


@o.fault("select_star")
def select_star(work: o.Work) -> o.Fact:
    """Return the share of the session's commands that select every column of a table."""
    commands = [str(call.arguments.get("command", "")) for call in work.calls if call.name == "bash"]
    wide = [command for command in commands if "select *" in command.lower()]
    return o.Fact(value=len(wide) / max(1, len(commands)))
