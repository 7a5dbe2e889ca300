"""Write the reference of commands and settings from the code: `make reference`.

`commands.md` comes from the parsers of `ostinato`, `settings.md` from the classes called `*Config`, and
`requests.md` from the fields that the gateway's dialects name. With `--check` nothing is written, and the
exit status is 1 when a page differs from the code.
"""

import argparse
import ast
import dataclasses
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato import config

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src" / "ostinato"
VARIABLES = {
    "OSTINATO_AGENT_SANDBOX_GATEWAY": "gateway of Kubernetes' agent-sandbox, where no router is named",
    "OSTINATO_AGENT_SANDBOX_NAMESPACE": "namespace of the pool (default: `default`)",
    "OSTINATO_AGENT_SANDBOX_POOL": "SandboxWarmPool that the backend `agent-sandbox` takes sandboxes from",
    "OSTINATO_AGENT_SANDBOX_URL": "address of agent-sandbox's router",
    "OSTINATO_BENCH_KEY": "API key of the endpoints that `ostinato bench run --url` measures",
    "OSTINATO_E2B_TEMPLATE": "template of the sandboxes of the backend `e2b` (default: `base`)",
    "OSTINATO_ENGINE_SECRET": "secret that a gateway sends to an engine; an engine does not start without it",
    "OSTINATO_JUDGE_KEY": "API key of the model that reads people's follow-ups (`live.judge`)",
    "OSTINATO_KEY": "API key for the gateway and for the search service",
    "OSTINATO_LAUNCHER": "process id of what started the ranks of a trainer, which end with it",
    "OSTINATO_RECORD": "run folder or record that commands mean which name none",
    "OSTINATO_USE": "plug-ins and the hashes of their sources, for the processes that one starts",
    "OSTINATO_REMOTE_KEY": "API key of a vLLM that is already there (`ostinato serve --engine`)",
    "OSTINATO_SAMPLER_KEY": "a sampler's key of the gateway, which the run gives it",
    "OSTINATO_SAMPLER_SEARCH_KEY": "a sampler's key of the search service, which the run gives it",
    "OSTINATO_SEARCH_URL": "address of the search service; without it the agent has no `semantic_search`",
    "OSTINATO_SELECT_KEY": "API key of the servers of `ostinato select`",
    "OSTINATO_STATE": "folder for sessions and checkpoints (default: `~/.local/state/ostinato`)",
    "OSTINATO_URL": "address of the gateway",
}
"""Every variable that a person sets."""
LOADERS = {"load", "config.load"}
"""The names under which the source calls the function that reads a file of settings."""
PROGRAMS = {"settings_of", "process.run", "run"}
"""The names under which it calls the functions that read the settings of a process."""
INTERNAL = {"OSTINATO_COMMAND"}
"""Variables that the program sets for its own child processes."""


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table, with the bars inside cells escaped."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


# Commands


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, without `--help` and without its subcommands."""
    skipped = argparse._HelpAction | argparse._SubParsersAction
    shown = [action for action in parser._actions if not isinstance(action, skipped)]
    return [action for action in shown if action.help != argparse.SUPPRESS]


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield the name, the parser and the one-line help of each subcommand."""
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in group._choices_actions}
            for name, inner in group.choices.items():
                yield name, inner, helps.get(name, "")


def value_of(action: argparse.Action) -> str:
    """Return the placeholder of an argument's value, empty for a switch."""
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        name = "|".join(map(str, action.choices))
    else:
        name = str(action.metavar or action.dest.upper())
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …", "...": f"{name} …"}.get(
        str(action.nargs), name
    )


def written(action: argparse.Action) -> str:
    """Return an argument as it is typed, such as `--port PORT`."""
    return " ".join(filter(None, [", ".join(action.option_strings), value_of(action)]))


def default_of(action: argparse.Action) -> str:
    """Return the default for the table, empty where there is none to name."""
    if action.required and action.option_strings:
        return "required"
    default = action.default
    empty = default is None or default is False or default in ("", [], (), argparse.SUPPRESS)
    return "" if empty else f"`{default}`"


def usage(prog: str, parser: argparse.ArgumentParser) -> str:
    """Return one line that shows how the command is called."""
    arguments = actions_of(parser)
    must = [written(action) for action in arguments if action.option_strings and action.required]
    may = ["[options]"] if any(action.option_strings and not action.required for action in arguments) else []
    positional = [value_of(action) for action in arguments if not action.option_strings]
    return " ".join([prog, *must, *may, *positional])


def command(prog: str, parser: argparse.ArgumentParser, help: str, level: int) -> Iterator[str]:
    """Yield the Markdown blocks of one command, then those of its subcommands."""
    yield f"{'#' * level} {prog}"
    about = help or parser.description or ""
    if about:
        yield f"{about[0].upper()}{about[1:]}{'' if about.endswith('.') else '.'}"
    inner = list(subcommands(parser))
    arguments = actions_of(parser)
    if not inner:
        yield f"```\n{usage(prog, parser)}\n```"
    rows = [
        (f"`{written(each)}`", default_of(each), (each.help or "").replace("%%", "%")) for each in arguments
    ]
    if rows:
        yield table(("argument", "default", "meaning"), rows)
    for name, nested, text in inner:
        yield from command(f"{prog} {name}", nested, text, min(level + 1, 3))


def variables() -> dict[str, set[str]]:
    """Return the environment variables that the source names, each with the rooms that name it."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for name in re.findall(r"\bOSTINATO_[A-Z0-9_]+\b", path.read_text()):
            found.setdefault(name, set()).add(path.relative_to(SOURCE).parts[0].removesuffix(".py"))
    return found


def commands_page() -> str:
    """Return the page of commands and environment variables."""
    for name in VARIABLES:  # defaults of the code, not of the shell that runs this
        os.environ.pop(name, None)
    from ostinato.cli import whole_parser  # builds its defaults from the environment

    found = variables()
    if found.keys() - INTERNAL != VARIABLES.keys():
        odd = sorted((found.keys() - INTERNAL) ^ VARIABLES.keys())
        raise SystemExit(
            f"docs/reference/make.py: describe in VARIABLES, or take out of it: {', '.join(odd)}"
        )
    rows = [(f"`{name}`", ", ".join(sorted(found[name])), VARIABLES[name]) for name in sorted(VARIABLES)]
    return "\n\n".join(
        [
            "# Commands",
            "Generated from the code by `make reference`; do not edit. A usage line names what must be given."
            " Exit status: 0 done, 1 the work failed, 2 the request was wrong, 130 interrupted.",
            *command("ostinato", whole_parser(), "", 2),
            "## Environment variables",
            "A key is never an argument, because arguments are visible to every user of a machine.",
            table(("variable", "read by", "meaning"), rows),
        ]
    )


# Settings


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a class of settings: its type and what stands below it, as the source has them."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Schema:
    """One class of settings, with the settings that it inherits."""

    name: str
    module: str
    meaning: str
    settings: tuple[Setting, ...]
    bases: frozenset[str]

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the fields that have one."""
        made = {}
        for field in dataclasses.fields(loaded(self.module, self.name)):
            if field.default is not dataclasses.MISSING:
                made[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                made[field.name] = field.default_factory()
        return made


def loaded(module: str, name: str) -> Any:
    """Return a class by its name."""
    return getattr(importlib.import_module(module), name)


def declarations() -> dict[str, tuple[str, ast.ClassDef]]:
    """Return every class of settings by its name: its module and its source."""
    found = {}
    wanted = first_arguments(PROGRAMS).keys()
    for module, tree in modules():
        for node in tree.body:
            named = isinstance(node, ast.ClassDef) and (node.name.endswith("Config") or node.name in wanted)
            if named and node.decorator_list:
                found[node.name] = (module, node)
    return found


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the name and the source of every module."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("ostinato", *path.relative_to(SOURCE).with_suffix("").parts)
        yield ".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text())


def first_arguments(functions: set[str]) -> dict[str, str]:
    """Return the names that stand first in calls of these functions, each with the module of the call."""
    return {
        ast.unparse(node.args[0]): module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in functions and node.args
    }


def schemas() -> dict[str, Schema]:
    """Return the schema of every dataclass called `*Config` by its name."""
    declared = declarations()
    made = {}
    for name, (module, node) in declared.items():
        kind = loaded(module, name)
        ancestors = [each.__name__ for each in kind.__mro__ if each.__name__ in declared]
        written = {each.name: each for base in reversed(ancestors) for each in settings_of(declared[base][1])}
        settings = tuple(written[field.name] for field in dataclasses.fields(kind))
        meaning = one_line(ast.get_docstring(node))
        made[name] = Schema(name, module, meaning, settings, frozenset(ancestors) - {name})
    return made


def settings_of(node: ast.ClassDef) -> Iterator[Setting]:
    """Yield the fields of a dataclass, each with the string that stands below it."""
    for field, below in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            constant = below.value if isinstance(below, ast.Expr) else None
            meaning = str(constant.value) if isinstance(constant, ast.Constant) else ""
            yield Setting(field.target.id, ast.unparse(field.annotation), one_line(meaning))


def one_line(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def section(schema: Schema, defaults: Mapping[str, Any], known: Mapping[str, Schema]) -> str:
    """Return the table of one class, with the defaults that hold in this place."""
    rows = []
    for each in schema.settings:
        value = defaults.get(each.name, dataclasses.MISSING)
        if each.type in known:
            shown = f"see {each.type}"
        else:
            shown = "required" if value is dataclasses.MISSING else f"`{literal(value)}`"
        rows.append((f"`{each.name}`", f"`{each.type}`", shown, each.meaning))
    return table(("field", "type", "default", "meaning"), rows)


def literal(value: Any) -> str:
    """Return a value as TOML writes it, or as Python does where TOML has no form for it."""
    try:
        return config._toml(value, "")
    except config.ConfigError:
        return repr(value)


def file_sections(
    schema: Schema, defaults: Mapping[str, Any], known: Mapping[str, Schema], where: str, top: str
) -> Iterator[str]:
    """Yield the blocks of a table of the file, then those of its inner tables; `top` is the first title."""
    yield f"### `[{where}]`" if where else f"### {top}"
    yield f"{schema.meaning} (`{schema.module}.{schema.name}`)"
    plain = [each for each in schema.settings if each.type not in known]
    yield section(dataclasses.replace(schema, settings=tuple(plain)), defaults, known)
    for each in schema.settings:
        if each.type in known:
            value = defaults[each.name]
            inner = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            yield from file_sections(known[each.type], inner, known, f"{where}.{each.name}".lstrip("."), top)


def nested(schema: Schema, known: Mapping[str, Schema]) -> frozenset[str]:
    """Return the names of a class, of its bases and of all classes inside it."""
    inner = (nested(known[each.type], known) for each in schema.settings if each.type in known)
    return schema.bases.union({schema.name}, *inner)


def settings_page() -> str:
    """Return the page of settings."""
    known = schemas()
    blocks = [
        "# Settings",
        "Generated from the code by `make reference`; do not edit. A setting of a run stands in a TOML file"
        " (`ostinato run FILE`) or is set by `--set TABLE.FIELD=VALUE`, for example"
        " `ostinato run FILE --set teach.steps=500`. An unknown name is refused.",
    ]
    files, programs = first_arguments(LOADERS), first_arguments(PROGRAMS)
    shown: set[str] = set()
    for name in sorted(files.keys() & known.keys()):
        blocks.append(f"## {name}: read from a file")
        blocks += file_sections(known[name], known[name].defaults(), known, "", "The top of the file")
        shown |= nested(known[name], known)
    blocks += [
        "## Programs",
        "Each program reads its settings from a table of a TOML file (`--config FILE --table NAME`) or from"
        " flags, one for each field, also for those of its inner tables. `--help` lists them.",
    ]
    for name in sorted(programs.keys() & known.keys()):
        title = f"python -m {programs[name]}"
        blocks += file_sections(known[name], known[name].defaults(), known, "", title)
        shown |= nested(known[name], known)
    blocks.append("## Made by the command that starts a server")
    for name in sorted(known.keys() - shown):
        schema = known[name]
        blocks += [f"### {name}", f"{schema.meaning} (`{schema.module}`)"]
        blocks.append(section(schema, schema.defaults(), known))
    return "\n\n".join(blocks)


# Requests

DIALECTS = {
    "chat": "`POST /v1/chat/completions`",
    "messages": "`POST /v1/messages`, `/v1/messages/count_tokens`",
    "responses": "`POST /v1/responses`",
}


def requests_page() -> str:
    """Return the fields of each dialect: those with an effect, those without, those that ask for nothing."""
    rows = []
    for name, route in DIALECTS.items():
        dialect = importlib.import_module(f"ostinato.gateway.dialects.{name}")
        neutral = [f"`{field}: {json.dumps(values[0])}`" for field, values in sorted(dialect.NEUTRAL.items())]
        named = [
            ", ".join(f"`{field}`" for field in sorted(fields)) for fields in (dialect.READ, dialect.IGNORED)
        ]
        rows.append((route, *named, ", ".join(neutral)))
    return "\n".join(
        [
            "# Requests",
            "",
            "What the [gateway](../gateway.md) does with each field of a request, by dialect. Generated from",
            "the code by `make reference`. A field that stands nowhere here is refused by its name, as it",
            "could change the answer; null is always accepted.",
            "",
            table(
                (
                    "request",
                    "read",
                    "accepted, without effect on the answer",
                    "accepted with this value alone",
                ),
                rows,
            ),
        ]
    )


def main() -> int:
    """Write the pages, or compare them with the code; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a page differs")
    check = parser.parse_args().check
    differ = []
    pages = {"commands.md": commands_page(), "settings.md": settings_page(), "requests.md": requests_page()}
    for name, text in pages.items():
        path = HERE / name
        if not path.exists() or path.read_text() != f"{text}\n":
            differ.append(f"docs/reference/{name}")
            if not check:
                path.write_text(f"{text}\n")
    if differ:
        outcome = "out of date: run `make reference` and commit what it writes" if check else "written"
        sys.stdout.write(f"{' and '.join(differ)}: {outcome}\n")
    return int(check and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
