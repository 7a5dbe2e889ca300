"""The errors of tool calls that the model reads, by kind. Any other error is a bug of ours."""

from ostinato.sandbox.base import SandboxPathError


class ToolError(Exception):
    """A tool call failed in a way that the model should read. The message is short, since it costs tokens."""


class InvalidArguments(ToolError):  # noqa: N818
    """The call does not fit the tool's schema, which is the model's fault."""


class UnexpectedEnvironment(ToolError):  # noqa: N818
    """The call is well formed but the repository is not as it assumes (no such file, text not found)."""


class ToolTimeout(ToolError):  # noqa: N818
    """The command ran past its time limit."""


class UserAborted(ToolError):  # noqa: N818
    """The user declined to answer or interrupted."""


class NotPermitted(ToolError):  # noqa: N818
    """A rule or the user does not allow the call."""


class ProviderError(ToolError):
    """A service that the tool depends on, such as search or an MCP server, failed or is not there."""


def file_error(path: str, error: Exception) -> UnexpectedEnvironment:
    """Return the error of a file operation in few words."""
    known = {
        FileNotFoundError: f"no such file {path}",
        IsADirectoryError: f"{path} is a directory",
        NotADirectoryError: f"{path} is not a directory",
        PermissionError: f"not allowed to use {path}",
        SandboxPathError: f"{path} is outside the repository",
    }
    other = f"{path}: {getattr(error, 'strerror', None) or error}"
    return UnexpectedEnvironment(
        next((text for kind, text in known.items() if isinstance(error, kind)), other)
    )
