"""Version 2 of the protocol, a draft: its messages put into those of version 1 and back, at the edge.

::

    editor (v2) ─► Draft.receive ─► v1 ─► EditorAgent
    editor (v2) ◄─ state, upserts, patches ◄── Draft.send ◄─ v1 ◄──┘

One version holds for a connection once it is initialized: an editor that asks for 1 gets 1, and everything
passes as it is. What version 2 tells by notifications (a prompt taken, at work, waiting for the person, idle
and why) is made from what version 1 tells by answers.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from ostinato.harness.frontends.acp.wire import Wire
from ostinato.types import new_id

VERSION = 2
PLAN_ID = "plan"
Json = dict[str, Any]


class Draft:
    """A Wire for both versions."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._active = False
        self._asked: dict[int | str, Json] = {}
        """The editor's requests that are not answered yet, by id."""
        self._permissions: dict[int | str, str] = {}
        """Sessions that wait for a dialog, by the request's id."""

    async def receive(self) -> Json | None:
        message = await self._wire.receive()
        if message is None:
            return None
        if message.get("method") == "initialize":
            return self._initialize(message)
        return await self._inward(message) if self._active else message

    async def send(self, message: Json) -> None:
        if not self._active:
            await self._wire.send(message)
            return
        if message.get("method") == "session/update":
            params = message["params"]
            await self._update(params["sessionId"], _update(params["update"]))
        elif message.get("method") == "session/request_permission":
            await self._permission(message)
        elif "method" in message:
            await self._wire.send(message)
        else:
            await self._answer(message)

    async def close(self) -> None:
        await self._wire.close()

    def _initialize(self, message: Json) -> Json:
        params = message.get("params") or {}
        self._active = isinstance(params.get("protocolVersion"), int) and params["protocolVersion"] >= VERSION
        if not self._active:
            return message
        self._asked[message["id"]] = message
        capabilities, info = params.get("capabilities") or {}, params.get("info")
        inner = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
        return message | {"params": inner}

    async def _inward(self, message: Json) -> Json:
        method, params = message.get("method"), message.get("params") or {}
        if "id" in message and method is not None:
            self._asked[message["id"]] = message
        if method is None:
            await self._resumed(message)
            return message
        if method == "session/prompt" and "id" in message:
            await self._taken(message)
        if method == "session/resume" and (params.get("replayFrom") or {}).get("type") == "start":
            return message | {"method": "session/load", "params": _with_servers(params)}
        if method in {"session/new", "session/resume"}:
            return message | {"params": _with_servers(params)}
        renamed = {"auth/login": "authenticate", "session/load": "no/such", "session/set_mode": "no/such"}
        return message | {"method": renamed.get(method, method)}

    async def _taken(self, message: Json) -> None:
        """The prompt's place in the history, and that work has begun; the answer follows at once."""
        params = message.get("params") or {}
        session = str(params.get("sessionId"))
        await self._wire.send({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        said = {"sessionUpdate": "user_message", "messageId": new_id(), "content": params.get("prompt", [])}
        await self._update(session, said)
        await self._state(session, "running")

    async def _answer(self, message: Json) -> None:
        asked = self._asked.pop(message.get("id", ""), {})
        method, result = asked.get("method"), message.get("result")
        if method == "session/prompt":
            session = str((asked.get("params") or {}).get("sessionId"))
            await self._idle(session, message)
        elif isinstance(result, dict) and method == "initialize":
            await self._wire.send(message | {"result": _initialized(result)})
        elif isinstance(result, dict):
            await self._wire.send(message | {"result": _result(result)})
        else:
            await self._wire.send(message)

    async def _idle(self, session: str, answer: Json) -> None:
        """How the work ended. An error is said as a message: there is no request left to answer."""
        if "error" in answer:
            block = {"type": "text", "text": f"error: {answer['error'].get('message')}"}
            said = {"sessionUpdate": "agent_message", "messageId": new_id(), "content": [block]}
            await self._update(session, said)
        reason = (answer.get("result") or {}).get("stopReason", "end_turn")
        await self._state(session, "idle", stopReason=reason)

    async def _permission(self, message: Json) -> None:
        params = dict(message["params"])
        call = dict(params.pop("toolCall"))
        call["content"] = [_content(item) for item in call.get("content") or []]
        self._permissions[message["id"]] = params["sessionId"]
        await self._state(params["sessionId"], "requires_action")
        asked = {
            "title": call.get("title") or "May it go on?",
            "subject": {"type": "tool_call", "toolCall": call},
        }
        await self._wire.send(message | {"params": params | asked})

    async def _resumed(self, message: Json) -> None:
        session = self._permissions.pop(message.get("id", ""), None)
        if session is not None:
            await self._state(session, "running")

    async def _state(self, session: str, state: str, **more: str) -> None:
        await self._update(session, {"sessionUpdate": "state_update", "state": state, **more})

    async def _update(self, session: str, update: Json) -> None:
        params = {"sessionId": session, "update": update}
        await self._wire.send({"jsonrpc": "2.0", "method": "session/update", "params": params})


def _with_servers(params: Mapping[str, Any]) -> Json:
    """Version 1 wants `mcpServers`, and in each server its lists, empty or not."""
    servers = [{"args": [], "env": []} | server for server in params.get("mcpServers") or []]
    stdio = [{k: v for k, v in server.items() if k != "type"} for server in servers if "command" in server]
    others = [{"headers": []} | server for server in servers if "command" not in server]
    return {k: v for k, v in params.items() if k != "replayFrom"} | {"mcpServers": stdio + others}


def _initialized(result: Json) -> Json:
    capabilities = result.get("agentCapabilities") or {}
    prompt = _markers(capabilities.get("promptCapabilities"))
    mcp = {"stdio": {}} | {
        k: v for k, v in _markers(capabilities.get("mcpCapabilities")).items() if k == "http"
    }
    return {
        "protocolVersion": VERSION,
        "info": result["agentInfo"],
        "capabilities": {"session": {"prompt": prompt, "mcp": mcp}},
        "authMethods": [],
    }


def _markers(capabilities: Json | None) -> Json:
    """What is supported is an empty object."""
    return {key: {} for key, has in (capabilities or {}).items() if has is True}


def _result(result: Json) -> Json:
    if "configOptions" not in result:
        return result
    options = [{"configId": option["id"]} | option for option in result["configOptions"] or []]
    return result | {"configOptions": [{k: v for k, v in each.items() if k != "id"} for each in options]}


def _update(update: Json) -> Json:
    kind = update["sessionUpdate"]
    if kind == "plan":
        plan = {"type": "items", "planId": PLAN_ID, "entries": update["entries"]}
        return {"sessionUpdate": "plan_update", "plan": plan}
    if kind.endswith("_chunk"):
        return {"messageId": new_id()} | update
    if kind in {"tool_call", "tool_call_update"}:
        content = update.get("content")
        diffs = {} if content is None else {"content": [_content(item) for item in content]}
        return update | {"sessionUpdate": "tool_call_update"} | diffs
    return update


def _content(item: Json) -> Json:
    """A diff as a change and a git patch; anything else as it is."""
    if item.get("type") != "diff":
        return item
    path, old, new = item["path"], item.get("oldText"), item["newText"]
    operation = "add" if old is None else "modify"
    change = {"operation": operation, "path": path, "fileType": "text"}
    patch = {"format": "git_patch", "diff": git_patch(path.lstrip("/"), old, new)}
    return {"type": "diff", "changes": [change], "patch": patch}


def git_patch(path: str, old: str | None, new: str) -> str:
    """As `git diff` writes it, without object ids."""
    before, after = (old or "").splitlines(keepends=True), new.splitlines(keepends=True)
    names = ("/dev/null" if old is None else f"a/{path}", f"b/{path}")
    head = f"diff --git a/{path} b/{path}\n" + ("new file mode 100644\n" if old is None else "")
    lines = difflib.unified_diff(before, after, *names)
    ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return head + "".join(ended)
