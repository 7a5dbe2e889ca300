"""The environment variables of commands in sandboxes, the same on every machine."""

import os
import sys
from pathlib import Path

from ostinato.sandbox.base import Spec

COMMAND_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""The variables of commands besides PATH and HOME."""
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The programs of an image that names no PATH."""


def command_environment() -> dict[str, str]:
    """Return the whole environment, which has nothing of the runner's own but its PYTHONPATH."""
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**COMMAND_ENVIRONMENT, **own, "PATH": path, "HOME": "/tmp"}  # noqa: S108


def spec_environment(spec: Spec) -> dict[str, str]:
    """Return the variables that a spec adds: those of its image, under its own.

    With an image the runner's PATH and PYTHONPATH name nothing, so they are replaced.
    """
    if spec.image is None:
        return dict(spec.environment)
    return {"PATH": IMAGE_PATH, "PYTHONPATH": "", **spec.image.environment, **spec.environment}
