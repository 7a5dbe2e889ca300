"""The fixtures of the sandbox room, for sandboxes that are elsewhere."""

from tests.sandbox.conftest import *  # noqa: F403
