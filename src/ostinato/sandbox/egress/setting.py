"""The setting `egress` of a run: the hosts that sessions may reach, and never the exams that judge them.

none         no network
registries   the package indexes that this machine's pip and npm are configured with
FILE.toml    a policy: the fields of `Egress`
"""

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ostinato.config import load
from ostinato.sandbox.base import Backend, Capabilities, Egress, Exam, Sandbox, SandboxError, Spec

NONE, REGISTRIES = "none", "registries"
_PORTS = {"https": 443, "http": 80}
_INSIDE = ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""The networks of mirrors: the user's own configuration names their hosts, and no other host is allowed."""
_TRUSTED = "PIP_TRUSTED_HOST"
_PIP = {"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url", _TRUSTED: "trusted-host"}


def policy(setting: str, environment: Mapping[str, str] = os.environ) -> Egress | None:
    """Return the policy of a setting; None for no network.

    Raises SandboxError when the machine names no index, ConfigError for a file that cannot be read.
    """
    if setting == NONE:
        return None
    if setting != REGISTRIES:
        return load(Egress, Path(setting))
    settings = {**_pip(environment), **_npm(environment)}
    addresses = [url for name, urls in settings.items() if name != _TRUSTED for url in urls]
    if not addresses:
        raise SandboxError(
            "sandbox.egress is registries, and this machine names none of a server: set `index-url` for pip "
            "or `registry` for npm, or name the hosts in a policy file"
        )
    return Egress(
        allow=tuple(dict.fromkeys(map(_target, addresses))),
        networks=_INSIDE,
        environment={name: " ".join(map(_public, urls)) for name, urls in settings.items()},
    )


def _pip(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return pip's indexes and trusted hosts by the names of its variables; folders are left out.

    A variable counts before the files that pip reads, of which the last counts.
    """
    home, own = Path(environment.get("HOME", "/")), environment.get("PIP_CONFIG_FILE", "")
    machine = [
        Path(each, "pip/pip.conf") for each in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    ]
    user = [
        home / ".pip/pip.conf",
        Path(environment.get("XDG_CONFIG_HOME", home / ".config"), "pip/pip.conf"),
    ]
    files: list[Path | str] = [*machine, Path("/etc/pip.conf"), *user, Path(sys.prefix, "pip.conf"), own]
    parser = configparser.RawConfigParser()
    try:
        parser.read([] if own == os.devnull else files)
    except (configparser.Error, UnicodeDecodeError) as error:
        raise SandboxError(f"pip's settings cannot be read: {error}: mend the file") from error
    found = {}
    for name, key in _PIP.items():
        said = [parser.get(part, key, fallback="") for part in ("install", "global")]
        text = next(filter(None, [environment.get(name), *said]), "")
        if urls := [url for url in text.split() if urlsplit(url).scheme != "file"]:
            found[name] = urls
    return found


def _npm(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return npm's registry by the name of its variable, if the variable or the user's file names one."""
    name = "npm_config_registry"
    url = environment.get(name, "")
    file = Path(environment.get("HOME", "/"), ".npmrc")
    for line in file.read_text().splitlines() if file.is_file() and not url else ():
        key, _, value = line.partition("=")
        if key.strip() == "registry":
            url = value.strip()
    return {name: [url]} if url else {}


def _target(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    if parts.hostname is None or port is None:
        raise SandboxError(
            f"the package index {_public(url)!r} is no address of HTTP: mend pip's or npm's settings"
        )
    return f"{parts.hostname}:{port}"


def _public(url: str) -> str:
    """Return an address without user and password, which no sandbox may see."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class LettingBackend:
    """A backend whose sandboxes may reach the hosts of a policy, unless their spec has one of its own.

    `judge` is the backend beneath, so that exams have no network (see `JudgedElsewhere`).
    """

    def __init__(self, backend: Backend, egress: Egress) -> None:
        """Raises SandboxError for a backend without egress."""
        if not backend.capabilities.egress:
            raise SandboxError(f"sandbox.egress needs the backend ns, and it is {backend.name}")
        self.judge, self._egress = backend, egress

    @property
    def name(self) -> str:
        return self.judge.name

    @property
    def capabilities(self) -> Capabilities:
        return self.judge.capabilities

    async def create(self, spec: Spec) -> Sandbox:
        return await self.judge.create(spec if spec.egress else replace(spec, egress=self._egress))

    async def examine(self, exam: Exam) -> list[dict[str, str]]:
        return await self.judge.examine(exam)

    async def aclose(self) -> None:
        await self.judge.aclose()
