"""The command line: parse, call a room, print.

Exit status 0: done; 1: the work failed; 2: the request was wrong; 130: interrupted. Only the room of the
command that is asked for is imported, so that `ostinato --help` and each command start quickly.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn, cast

from ostinato import __version__

DONE, FAILED, WRONG = 0, 1, 2
INTERRUPTED = 130
INHERITED = "OSTINATO_USE"  # of `extend`, which costs as much as all of `--version`
DESCRIPTION = "Train a coding agent inside the harness that ships it, and from the people who use it."


class Help(argparse.HelpFormatter):
    """The help of a command, with each default that its words do not name."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_default = action.option_strings and action.default not in (None, False, "", [], argparse.SUPPRESS)
        if not has_default or "(default: " in (action.help or ""):
            return action.help
        return f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """A parser that refuses an unknown argument itself, so that the usage shown is that of the command.

    Its help shows every default, and ends in examples.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{"formatter_class": Help, **settings})

    def format_help(self) -> str:
        shown = [
            f"  {line}\n" for line in EXAMPLES if f"{line} ".startswith(f"{self.prog} ") and " " in self.prog
        ]
        return super().format_help() + ("\nexamples:\n" + "".join(shown) if shown else "")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown argument: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, then how the command is used; exit with status 2."""
        print(f"ostinato: {message}", file=sys.stderr)  # noqa: T201
        self.print_usage(sys.stderr)
        self.exit(WRONG, f"more: {self.prog} --help\n")


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The subparsers of `ostinato`: a room adds its commands by name, and their help stands in COMMANDS."""

    def add_parser(self, name: str, **settings: Any) -> Any:
        return super().add_parser(name, help=COMMANDS[name][0], **settings)


Register = Callable[[Commands], object]


def _in(module: str) -> Register:
    """Return the registration of a room's commands; the room is imported when it is called."""
    return lambda commands: import_module(module).register(commands)


def _tasks(commands: Commands) -> None:
    from ostinato.mining.commands import register as register_mine
    from ostinato.sandbox.environment.commands import register as register_build

    group = commands.add_parser("tasks").add_subparsers(required=True, metavar="COMMAND")
    register_build(group)
    register_mine(group)


def _search(commands: Commands) -> None:
    from ostinato.loop.search import register as register_query
    from ostinato.search.commands import register as register_serve

    group = commands.add_parser("search").add_subparsers(required=True, metavar="COMMAND")
    register_query(group)
    register_serve(group)


def _data(commands: Commands) -> None:
    from ostinato.bench.fence import texts_at
    from ostinato.data.commands import register
    from ostinato.model.tokenizer import Tokenizer

    register(commands, encoder=Tokenizer.load, texts=texts_at)


def _doctor(commands: Commands) -> None:
    from ostinato.engine.machine import facts
    from ostinato.sandbox.doctor import register

    register(commands, facts=facts)


_RUNS, _AGENT = _in("ostinato.demo.commands"), _in("ostinato.harness.frontends.command_line")
_SEEN, _HOOKS = _in("ostinato.loop.dashboard.commands"), _in("ostinato.edits.install.commands")
_TEAM = _in("ostinato.loop.team.commands")
_ACCOUNTS, _LOOP = _in("ostinato.gateway.access.commands"), _in("ostinato.loop.commands")
_EXCHANGE = _in("ostinato.exchange.commands")
COMMANDS: Mapping[str, tuple[str, Register]] = {
    "run": ("teach, practise, measure and deploy a model, as a file says", _RUNS),
    "demo": ("turn the whole circle once, on this machine", _RUNS),
    "sft": ("fine-tune a model on demonstrations of your own", _in("ostinato.loop.sft.commands")),
    "init": ("write a file for `ostinato run` that suits this machine", _in("ostinato.loop.init")),
    "code": ("let the agent work in a git repository", _AGENT),
    "background": (
        "tasks that the agent works on for hours",
        _in("ostinato.harness.frontends.background.commands"),
    ),
    "session": ("look at recorded sessions of the agent", _AGENT),
    "hook": ("report an event of an agent or of git (never fails, prints nothing)", _HOOKS),
    "hooks": ("follow what becomes of an agent's edits in a repository", _HOOKS),
    "serve": (
        "serve a run's version, a checkpoint, or a vLLM that is there",
        _LOOP,
    ),
    "dashboard": ("see sessions, versions and verdicts in a browser", _SEEN),
    "report": ("write a run as one file of HTML, for a chat or a paper", _SEEN),
    "arms": ("which engines serve which users", _in("ostinato.deploy.commands")),
    "plan": ("how long a trial takes, or a cycle on other machines", _in("ostinato.deploy.plan_commands")),
    "cycle": ("turn a run's cycle again and again, unattended", _in("ostinato.demo.cycle_commands")),
    "fidelity": (
        "what people are served otherwise than the model is trained and measured",
        _in("ostinato.loop.fidelity.commands"),
    ),
    "rewards": ("what live sessions are worth, and why", _in("ostinato.rewards.live.commands")),
    "bench": (
        "measure versions on a suite of tasks, and tell them apart",
        _in("ostinato.loop.suites.commands"),
    ),
    "data": ("make a corpus to pretrain on", _data),
    "pretrain": ("pretrain a checkpoint further, on a corpus", _in("ostinato.train.pretrain.commands")),
    "select": (
        "choose a base model by what it knows, tracks and predicts",
        _in("ostinato.loop.suites.select"),
    ),
    "acp": (
        "serve the agent to an editor (Agent Client Protocol)",
        _in("ostinato.harness.frontends.acp.main"),
    ),
    "search": ("search a repository by meaning", _search),
    "tasks": ("make tasks to practise on and to measure with", _tasks),
    "lineage": (
        "show the ancestors of a version, back to the sessions",
        _LOOP,
    ),
    "team": ("one gateway for a team: init, up, add, status, remove", _TEAM),
    "join": ("join a team on this machine: key, hooks, clients", _TEAM),
    "keys": ("who may call the gateway", _ACCOUNTS),
    "consent": ("whose sessions may be trained on: opt-in, organisation and user", _ACCOUNTS),
    "purge": ("remove a user's data, and name what was trained on it", _ACCOUNTS),
    "export": ("write recorded sessions as a data set for other trainers", _EXCHANGE),
    "import": ("read sessions that other programs recorded into the record", _EXCHANGE),
    "store": ("see, compact and expire a record", _in("ostinato.store.commands")),
    "doctor": ("try every sandbox backend and what it needs on this machine", _doctor),
    "weights": (
        "import a model, export a draft; list and mirror versions",
        _in("ostinato.loop.weights"),
    ),
}
"""The help of each command, and the registration of its room."""
EXAMPLES = """\
ostinato run recipes/k1.toml
ostinato demo --seed 2
ostinato sft sft.toml --directory runs/sft
ostinato init run.toml --model ~/models/Qwen3-8B
ostinato code "the mean in calc.py is off by one"
ostinato code --resume
ostinato code --background "port the tests to pytest" --allow "bash: pytest *"
ostinato background list
ostinato background show --json
ostinato background follow 3f2a90c1
ostinato background stop 3f2a90c1
ostinato background take 3f2a90c1
ostinato background drop 3f2a90c1
ostinato session list
ostinato session show 3f2a90c1
ostinato session replay 3f2a90c1
ostinato session export --format openai
ostinato hook --input stdin
ostinato hooks install --claude-code
ostinato hooks blame calc.py
ostinato serve --directory runs/demo
ostinato serve --model Qwen/Qwen3-8B --engine http://127.0.0.1:8000
ostinato dashboard --directory runs/demo
ostinato report runs/demo
ostinato arms list
ostinato arms set champion --version 3 --engine http://127.0.0.1:8000
ostinato arms split champion=0.9 challenger=0.1
ostinato plan ab --baseline 0.6 --lift 2.28% --users 20000
ostinato plan cluster --model 1T-moe --gpus h100:512 --cycle 5h
ostinato cycle --directory runs/team --every 5h
ostinato cycle status
ostinato cycle pause --reason "a holiday"
ostinato cycle resume
ostinato cycle abort
ostinato cycle promote
ostinato cycle rollback
ostinato cycle confirm 12 --reason "kept for a month"
ostinato cycle demote 12 --reason "people reverted it"
ostinato fidelity runs/team
ostinato fidelity team.toml --json
ostinato rewards explain 3f2a90c1
ostinato rewards score --definition mine.toml
ostinato bench seal mined
ostinato bench run mined --versions 3 7
ostinato bench run mined --url qwen3@http://127.0.0.1:8000/v1 --out report
ostinato bench mine . --out mined --store runs/serve/store.db
ostinato bench refresh mined --directory runs/team --look
ostinato bench looks --versions 7 8 --directory runs/team
ostinato bench calibrate qwen3@http://127.0.0.1:8000/v1
ostinato bench pairs mined --out pairs.jsonl
ostinato data build corpus.toml --out corpus
ostinato pretrain pretrain.toml
ostinato select ~/models/Qwen3-8B Qwen/Qwen3-4B --code ../our-service
ostinato select start --library newlib-1.0.tar.gz@2026-03-01 --cutoff start=2025-03-01
ostinato acp --url http://127.0.0.1:8080
ostinato search serve --key-file key
ostinato search query "parse a header"
ostinato tasks build task --image rootfs.tar
ostinato tasks mine . --out mined
ostinato tasks pack mined mined.tar
ostinato lineage 32
ostinato team init --engine http://gpu:8000/v1 --model Qwen/Qwen3-8B
ostinato team up
ostinato team add ada ben --org payments
ostinato team status
ostinato team remove ada
ostinato join https://models.example join_2f6b…
ostinato join --consent no
ostinato keys add ada --roles use,feedback
ostinato keys list
ostinato keys revoke 3f2a90c1
ostinato consent show
ostinato consent set yes --user ada
ostinato purge --user ada
ostinato export sessions --source live --reward 0.5
ostinato export sessions --format tokens --directory runs/team
ostinato import claude-code --user ada --consent yes --directory runs/serve
ostinato import litellm logs/*.jsonl --directory runs/serve
ostinato store info --directory runs/demo
ostinato store compact --older-than 30 --directory runs/team --yes
ostinato store expire --older-than 90 --directory runs/team --yes
ostinato doctor
ostinato weights import SmolLM2.gguf start
ostinato weights draft pretrained draft
ostinato weights list runs/demo/objects
ostinato weights collect runs/demo/objects
ostinato weights mirror runs/demo/objects /mnt/elsewhere
""".splitlines()
"""One line or two for each command; its help ends in those that begin as it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    An error that a person can mend is one sentence on stderr and status 2; anything else is a defect of ours
    and keeps its traceback.
    """
    words = _without_plugins(sys.argv[1:] if arguments is None else list(arguments))
    options = parser_of(words[0] if words else "").parse_args(words)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` starts us with it ignored
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))  # end as cleanly as Ctrl-C
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        print(getattr(options, "interrupted", "stopped"), file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except Exception as error:
        if (sentence := _expected(error, words[0])) is None:
            raise
        print(f"ostinato: {sentence}", file=sys.stderr)  # noqa: T201
        return WRONG
    return status


def _without_plugins(words: list[str]) -> list[str]:
    """Load the plug-ins that stand before the command, and those of the process above; return the rest."""
    if words[:1] != ["--use"] and INHERITED not in os.environ:
        return words
    from ostinato import extend  # not for each `--help`

    try:
        extend.inherit()
        while len(words) > 1 and words[0] == "--use":
            extend.use(words[1])
            words = words[2:]
    except extend.PluginError as error:
        _bare()[0].error(str(error))
    return words


def _expected(error: Exception, command: str) -> str | None:
    """Return the sentence that tells a person about `error`; None for a defect.

    The error classes of these packages are raised with a sentence that says what, where and what to do. An
    operating system's error is expected when it names a file: one that is missing, read-only or full. A
    package of an extra may be missing.
    """
    from ostinato import extras
    from ostinato.laboratory import LABORATORY

    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ImportError) and (module := extras.missing(error)) is not None:
        return extras.sentence(module, f"`ostinato {command}`")
    return str(error) if type(error).__module__.partition(".")[0] in {"ostinato", LABORATORY} else None


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, with every room imported: for the reference and for tests."""
    parser, commands = _bare()
    for register in dict.fromkeys(register for _, register in COMMANDS.values()):
        register(commands)
    return parser


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of one command; of any other word, one that knows the commands by name alone."""
    parser, commands = _bare()
    if command in COMMANDS:
        COMMANDS[command][1](commands)
    else:
        for name in COMMANDS:
            commands.add_parser(name)
    return parser


def _bare() -> tuple[argparse.ArgumentParser, Commands]:
    parser: argparse.ArgumentParser = Parser(prog="ostinato", description=DESCRIPTION)
    parser.add_argument(
        "--use", metavar="PLUGIN", help="load a plug-in first: a Python file, or a package's entry point"
    )
    parser.add_argument("--version", action="version", version=f"ostinato {__version__}")

    def run(_: argparse.Namespace) -> int:
        parser.print_help()
        return WRONG

    parser.set_defaults(run=run)
    return parser, cast(Commands, parser.add_subparsers(metavar="COMMAND", action=Commands))


if __name__ == "__main__":
    sys.exit(main())
