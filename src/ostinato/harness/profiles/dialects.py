"""The dialects of other harnesses: their names of tools and arguments, and the forms of their values.

Only names and forms are theirs. The descriptions are ours, and the tools do the same everywhere. `SHORT` is
our own.
"""

from ostinato.harness.profiles.forms import Form
from ostinato.harness.profiles.offers import Argument, shown_as
from ostinato.harness.tools.definitions import INTEGER, PRIORITIES, STATUSES, STRING, STRINGS, one_of, records

IN_MILLISECONDS = (
    "Run a shell command in the repository root; returns stdout and stderr. Each call is a new shell. "
    "timeout is in milliseconds."
)
TIMEOUT = Argument(name="timeout", canonical="timeout", schema=INTEGER, form=Form.MILLISECONDS)
DESCRIPTION = Argument(name="description", canonical="", schema=STRING, form=Form.NOTE)
QUESTIONS = Argument(
    name="questions",
    canonical="question",
    schema=records(
        ("question",),
        question=STRING,
        header=STRING,
        options=records(("label",), label=STRING, description=STRING),
    ),
    form=Form.QUESTION,
    required=True,
)


def _plan(name: str, words: str, **more: object) -> Argument:
    """Return the argument that holds the steps; `words` is the name of a step's text."""
    steps = records((words, "status"), **{words: STRING, "status": one_of(STATUSES)}, **more)
    return Argument(name=name, canonical="todos", schema=steps, form=Form.PLAN, required=True)


CLAUDE = (
    shown_as("read", "Read", path="file_path"),
    shown_as("write", "Write", path="file_path"),
    shown_as("edit", "Edit", path="file_path"),
    shown_as("bash", "Bash", TIMEOUT, DESCRIPTION, says=IN_MILLISECONDS),
    shown_as("grep", "Grep", limit="head_limit"),
    shown_as("glob", "Glob", limit=""),
    shown_as("todo_write", "TodoWrite", _plan("todos", "content", activeForm=STRING)),
    shown_as("ask_user", "AskUserQuestion", QUESTIONS, options=""),
)
"""The tools of Claude Code. `activeForm` is the text that its screen shows for a step in progress."""

OPENCODE = (
    shown_as("read", "read", path="filePath"),
    shown_as("write", "write", path="filePath"),
    shown_as(
        "edit",
        "edit",
        path="filePath",
        old_string="oldString",
        new_string="newString",
        replace_all="replaceAll",
    ),
    shown_as("apply_patch", "apply_patch", patch="patchText"),
    shown_as("bash", "bash", TIMEOUT, DESCRIPTION, says=IN_MILLISECONDS),
    shown_as("grep", "grep", glob="include", limit=""),
    shown_as("glob", "glob", limit=""),
    shown_as("ls", "list"),
    shown_as("todo_write", "todowrite", _plan("todos", "content", priority=one_of(PRIORITIES), id=STRING)),
    shown_as("ask_user", "question", QUESTIONS, options=""),
)

PI = (
    shown_as("read", "read"),
    shown_as("write", "write"),
    shown_as("edit", "edit", old_string="oldText", new_string="newText", replace_all=""),
    shown_as("bash", "bash"),
    shown_as("grep", "grep"),
    shown_as("glob", "find"),
    shown_as("ls", "ls"),
)

CODEX = (
    shown_as(
        "bash",
        "shell",
        Argument(name="command", canonical="command", schema=STRINGS, form=Form.ARGV, required=True),
        Argument(name="timeout_ms", canonical="timeout", schema=INTEGER, form=Form.MILLISECONDS),
        says="Run a program in the repository root, given as a list of words; returns stdout and stderr.",
    ),
    shown_as("apply_patch", "apply_patch", patch="input"),
    shown_as(
        "todo_write",
        "update_plan",
        Argument(name="explanation", canonical="", schema=STRING, form=Form.NOTE),
        _plan("plan", "step"),
    ),
)
"""The tools of Codex, which edits by patches alone and reads with the shell."""

MINI = (shown_as("bash", "bash", timeout="", says="Run a shell command in the repository root."),)
"""The tool of mini-swe-agent: everything is the shell."""

SHORT = (
    shown_as("read", "read", offset="", limit="", says="Read a file."),
    shown_as(
        "edit",
        "edit",
        replace_all="",
        says="Replace old_string, which must occur once, by new_string in a file.",
    ),
    shown_as("bash", "bash", timeout="", says="Run a shell command."),
    shown_as("ls", "ls", says="List a directory."),
    shown_as("ask_user", "ask_user", options="", says="Ask the user one question."),
)
"""The canonical names with the fewest words, for small models and machines."""
