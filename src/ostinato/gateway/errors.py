"""Errors as OpenAI clients expect them: a status and `{"error": {message, type, code, param}}`."""

import json
from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """An error to respond with. Its message says what is wrong and what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "code": self.code, "param": self.param}}

    def encoded(self) -> bytes:
        return json.dumps(self.body()).encode()


def invalid(message: str, param: str | None = None, *, code: str = "invalid_request") -> ApiError:
    """Return a 400 that names the field `param`."""
    return ApiError(400, message, code=code, param=param)


def unavailable(message: str, code: str) -> ApiError:
    """Return a 503 that asks the client to try again."""
    return ApiError(503, message, code=code, headers={"Retry-After": "1"})


def stopping() -> ApiError:
    """Return the 503 of a request that the end of the gateway cuts short."""
    return unavailable("the gateway is stopping: send the request again", "stopping")
