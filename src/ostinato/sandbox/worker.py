"""The side of an exam that runs the candidate's code: imports its modules, calls its functions.

It never sees a test. Everything it answers is only data to the judge, so code that takes over this process
can at most answer wrongly.
"""

import importlib
import os
import random
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ostinato.sandbox import channel
from ostinato.sandbox.values import NotPlainError


def serve(calls: socket.socket, root: str, variation: int = 0) -> None:
    """Answer the judge's questions about the modules in `root` until it hangs up."""
    random.seed(variation)
    os.chdir(root)
    folders = [root, os.path.join(root, "src")]  # noqa: PTH118
    sys.path[:0] = folders
    forget(module_names(root), folders)
    while True:
        try:
            question = channel.receive(calls)
        except channel.ChannelError:
            return
        _reply(calls, _answer(question))


def module_names(repo: str) -> list[str]:
    """Top-level modules and packages of a repository, those under `src` included."""
    folders = [folder for folder in (Path(repo), Path(repo, "src")) if folder.is_dir()]
    entries = [entry for folder in folders for entry in folder.iterdir()]
    return sorted(
        {entry.stem for entry in entries if entry.suffix == ".py" or entry.is_dir()} - {"src", ".git"}
    )


def forget(names: Iterable[str], folders: Iterable[str]) -> None:
    """Drop loaded modules of these names: the next import finds those in `folders`."""
    for top in [name for name in names if name in sys.modules]:
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
    for folder in folders:
        sys.path_importer_cache.pop(folder, None)  # all that `invalidate_caches` would do for them


def _reply(calls: socket.socket, answer: dict[str, Any]) -> None:
    try:
        channel.send(calls, answer)
    except (NotPlainError, RecursionError, channel.ChannelError) as error:
        channel.send(calls, {"raised": "NotPlainError", "message": str(error)})


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        module = importlib.import_module(question["module"])
        if "name" not in question:
            return {"value": None}
        found = getattr(module, question["name"])
        if "args" in question:
            return {"value": found(*question["args"], **question["kwargs"])}
        return {"callable": True} if callable(found) else {"value": found}
    except BaseException as error:
        return {"raised": type(error).__name__, "message": _message(error)}


def _message(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except BaseException:
        return "the error could not be written"


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
