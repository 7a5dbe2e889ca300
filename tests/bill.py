"""What is beside a wheel in `dist/`: what it runs with, the sums of the files, and a signature of the sums.

The bill of materials is CycloneDX 1.6, of the environment in which the wheel's demo ran, with licences. Who
publishes names an SSH key in OSTINATO_SIGNING_KEY; `ssh-keygen -Y verify -n ostinato` checks what it signed.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.provision import CONSTRAINTS, environment, install

TOOL = "cyclonedx-bom"
NAMESPACE = "ostinato"
KEY = "OSTINATO_SIGNING_KEY"
UNSAID = {"agent-client-protocol": "Apache-2.0"}
"""Licences that packages ship as a file and do not name, by package."""


def write_bill(python: Path, place: Path, bill: Path) -> None:
    """Write the bill of the environment of `python`; tools go below `place`.

    Raises AssertionError for a package whose licence nobody knows.
    """
    tools = environment(place / "bill")
    install(tools, "--constraint", str(CONSTRAINTS), TOOL, quiet=True)
    program = str(tools.with_name("cyclonedx-py"))
    options = ("--output-reproducible", "--short-PURLs", "--spec-version", "1.6", "--output-file", str(bill))
    subprocess.run([program, "environment", *options, str(python)], check=True)
    bill.write_text(json.dumps(stated(json.loads(bill.read_text())), indent=1) + "\n")


def stated(bill: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bill with every licence, and without the folders that packages were installed from."""
    components = []
    for each in bill["components"]:
        from_where = [one for one in each.get("externalReferences", ()) if not one["url"].startswith("file:")]
        licences = each.get("licenses") or [{"license": {"id": UNSAID.get(each["name"], "")}}]
        components.append({**each, "externalReferences": from_where, "licenses": licences})
    unknown = [each["name"] for each in components if each["licenses"] == [{"license": {"id": ""}}]]
    assert not unknown, f"no licence is known of {unknown}: add what their files say to `UNSAID`"
    return {**bill, "components": components}


def sign(folder: Path) -> str:
    """Write SHA256SUMS of the files of `folder`, signed if there is a key; return what was done in words."""
    sums, signature = folder / "SHA256SUMS", folder / "SHA256SUMS.sig"
    files = sorted(path for path in folder.iterdir() if path not in (sums, signature))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    sums.write_text("".join(lines))
    signature.unlink(missing_ok=True)
    if not (key := os.environ.get(KEY)):
        return f"not signed: {KEY} names no key"
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", key, str(sums)], check=True)
    return f"signed by {key}"
