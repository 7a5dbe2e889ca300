"""The migration of a fork that does not fit on its parent's node: the parent's files go to another node.

Only files move, no links. The parent's processes do not run in the child, as after the restore of a
filesystem snapshot.
"""

from ostinato.fleet.server.control import ControlError, SandboxInfo, SandboxRequest
from ostinato.fleet.server.node_client import NodeClient
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.protocol import entries


async def migrate(home: NodeClient, parent: str, target: NodeClient, request: SandboxRequest) -> SandboxInfo:
    """Create a sandbox on `target` with the files of `parent`.

    Raises SandboxError; nothing is left on the target then.
    """
    if home.report["capabilities"]["fork"] == "full":
        raise ControlError(
            429, f"{parent} can only be forked with its memory, on {home.name}: it is full", 5.0
        )
    body = await home.client.rpc(parent, "ostinato.Tree/Read", {"of": "changes"})
    info = await target.create(request)
    try:
        for path, text in body["changes"].items():
            data = entries.unpacked(text)
            if isinstance(data, entries.Symlink | entries.EmptyDirectory):
                continue
            if data is None:
                await target.client.rpc(request.id, "filesystem.Filesystem/Remove", {"path": path})
            else:
                await target.client.upload(request.id, path, data)
    except SandboxError:
        await target.end(request.id)
        raise
    return info
