"""The rules for the names and addresses that a sandbox may reach. Pure functions but for the resolver.

A name is resolved here, and the proxy connects to the very address that was checked, so a name that changes
its address a moment later gains nothing (DNS rebinding). Addresses outside of the public internet are
refused, even if an allowed name leads to them (server-side request forgery), except in the networks that the
policy lists.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ostinato.sandbox.base import Egress, SandboxError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_-]{1,63})*$")


class PolicyRefusal(Exception):  # noqa: N818 - the policy at work is not an error
    """A connection that the policy does not allow; the message names the rule and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    host: str
    below: bool
    """True for `*.host`: every name below it and not the host itself."""
    port: int

    def covers(self, host: str, port: int) -> bool:
        return port == self.port and (host.endswith("." + self.host) if self.below else host == self.host)


class Rules:
    """The rules of a policy. Raises SandboxError for an entry that cannot be read."""

    def __init__(self, policy: Egress, resolve: Resolve | None = None) -> None:
        self._rules = tuple(_rule(entry) for entry in policy.allow)
        self._networks = tuple(_network(entry) for entry in policy.networks)
        self._resolve = resolve or _system_resolve

    async def route(self, host: str, port: int) -> str:
        """Return the address to connect to for `host`. Raises PolicyRefusal."""
        name = plain_name(host)
        if not any(rule.covers(name, port) for rule in self._rules):
            raise PolicyRefusal(f"{name}:{port} is not allowed: add it to the policy's `allow`")
        try:
            addresses = await self._resolve(name, port)
        except OSError as error:
            raise PolicyRefusal(f"{name} has no address: {error.strerror or error}") from error
        for text in addresses:  # one bad address is enough to refuse
            self._check_address(name, ipaddress.ip_address(text.partition("%")[0]))
        if not addresses:
            raise PolicyRefusal(f"{name} has no address")
        return addresses[0]

    def _check_address(self, name: str, address: Address) -> None:
        real = _unwrapped(address)
        if real.is_global and not real.is_multicast:
            return
        if not any(real in network for network in self._networks):
            raise PolicyRefusal(f"{name} leads to {real}, inside: add its network to the policy's `networks`")


def plain_name(host: str) -> str:
    """Return a host in the form of the rules. Raises PolicyRefusal if it is neither a name nor an address."""
    name = host.lower().removesuffix(".")
    bare = name.removeprefix("[").removesuffix("]")
    if ":" in bare:
        return str(_address(bare))
    if not _NAME.match(name):
        raise PolicyRefusal(
            f"{host[:100]!r} is not a host: give a name in ASCII (xn--… for others) or an address"
        )
    return name


def split_target(target: str, default_port: int | None = None) -> tuple[str, int]:
    """Split `host:port`. Raises PolicyRefusal."""
    host, colon, port = target.rpartition(":")
    if not colon or host.startswith("[") != host.endswith("]") or port.endswith("]"):
        host, port = target, ""
    if not port and default_port is not None:
        return plain_name(host), default_port
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise PolicyRefusal(f"{target[:100]!r} names no port: write host:port")
    return plain_name(host), int(port)


def _rule(entry: str) -> _Rule:
    try:
        host, port = split_target(entry.removeprefix("*."))
    except PolicyRefusal as error:
        raise SandboxError(f"egress rule {entry!r}: {error}") from error
    return _Rule(host=host, below=entry.startswith("*."), port=port)


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(entry)
    except ValueError as error:
        raise SandboxError(f"egress network {entry!r}: {error}") from error


def _address(text: str) -> Address:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        raise PolicyRefusal(f"{text[:100]!r} is not an address") from None


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address in an IPv6 one: mapped, 6to4, Teredo and NAT64 addresses all lead to it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    teredo = address.teredo
    inner = address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def _system_resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]
