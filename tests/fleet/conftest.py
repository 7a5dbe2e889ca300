"""The fixtures of the sandbox tests, for sandboxes on a server."""

from tests.sandbox.conftest import *  # noqa: F403
