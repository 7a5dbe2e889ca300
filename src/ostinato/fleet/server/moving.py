"""A fork that does not fit on its parent's node: the parent's files are brought to a fresh sandbox elsewhere.

Files only, and no links: what ran in the parent does not run in the child, as after a restore of a
filesystem snapshot.
"""

from ostinato.fleet.server.link import Link
from ostinato.fleet.server.wishes import ControlError, Info, Wish
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.protocol import entries


async def move(home: Link, parent: str, target: Link, wish: Wish) -> Info:
    """Raises SandboxError; then nothing is left on the target."""
    if home.report["capabilities"]["fork"] == "full":
        raise ControlError(
            429, f"{parent} can only be forked with its memory, on {home.name}: it is full", 5.0
        )
    told = await home.client.rpc(parent, "ostinato.Tree/Read", {"of": "changes"})
    info = await target.create(wish)
    try:
        for path, text in told["changes"].items():
            data = entries.unpacked(text)
            if isinstance(data, entries.Symlink | entries.EmptyDirectory):
                continue
            if data is None:
                await target.client.rpc(wish.id, "filesystem.Filesystem/Remove", {"path": path})
            else:
                await target.client.upload(wish.id, path, data)
    except SandboxError:
        await target.end(wish.id)
        raise
    return info
