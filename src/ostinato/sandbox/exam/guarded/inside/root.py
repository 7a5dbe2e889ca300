"""The place of a suite's run: the repository, whose packages its children find too."""

import os
import sys


def enter(root: str) -> None:
    """Go to the repository; this process and its children find its packages, which nobody installed."""
    os.chdir(root)
    folders = [each for each in (root, os.path.join(root, "src")) if os.path.isdir(each)]  # noqa: PTH112, PTH118
    sys.path[:0] = folders
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [given])])
