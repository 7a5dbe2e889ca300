"""A tool: the owners of a file, read where the agent works, in the profile `owned`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ostinato as o

OWNERS = o.tool("owners", "Who owns a file.", ("path",), path={"type": "string"})


@o.add_tool(OWNERS)
async def owners(sandbox: o.Sandbox, arguments: Mapping[str, Any]) -> str:
    """Return the owners by the longest matching line of OWNERS."""
    if "OWNERS" not in await sandbox.files():
        raise o.ToolError("this repository has no OWNERS file")
    rows = [line.split() for line in (await sandbox.read("OWNERS")).decode().splitlines() if line.strip()]
    found = [row for row in rows if str(arguments["path"]).startswith(row[0])]
    return " ".join(max(found, key=lambda row: len(row[0]))[1:]) if found else "nobody"


core = o.profile("core")
o.add_profile(replace(core, name="owned", offers=(*core.offers, o.as_it_is("owners"))))
