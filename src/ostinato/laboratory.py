"""The door to the laboratory: commands whose programs lie in the package `ostinato_lab` beside this one."""

import argparse
import pkgutil
from collections.abc import Callable

LABORATORY = "ostinato_lab"
Command = Callable[[argparse.Namespace], int]


class LaboratoryError(RuntimeError):
    """The laboratory is not installed; the message says what to do."""


def laboratory(name: str) -> Command:
    """Return a command of the laboratory, named as `week.command:simulate` and imported when it runs.

    The command raises LaboratoryError where the package is missing.
    """

    def run(options: argparse.Namespace) -> int:
        try:
            command: Command = pkgutil.resolve_name(f"{LABORATORY}.{name}")
        except ModuleNotFoundError as error:
            if error.name != LABORATORY:
                raise
            raise LaboratoryError(
                f"this command needs the package {LABORATORY}, which is not installed: it comes with the "
                "wheel of ostinato, so install that anew with `pip install --force-reinstall --no-deps`"
            ) from error
        return command(options)

    return run
