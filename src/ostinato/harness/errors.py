"""What can go wrong with a tool call: named kinds the model is told about; anything else is our bug."""


class ToolError(Exception):
    """A tool call failed in a way the model should read. The message is short: it costs the model tokens."""


class InvalidArguments(ToolError):  # noqa: N818
    """The call does not fit the tool's schema. The model's fault."""


class UnexpectedEnvironment(ToolError):  # noqa: N818
    """The call is well formed but the repository is not as it assumes (no such file, text not found)."""


class ToolTimeout(ToolError):  # noqa: N818
    """The command ran past its time limit."""


class UserAborted(ToolError):  # noqa: N818
    """The user declined to answer or interrupted."""


class NotPermitted(ToolError):  # noqa: N818
    """A rule or the user does not allow the call."""


class ProviderError(ToolError):
    """What the tool depends on outside the sandbox (search service, MCP server) failed or is not there."""
