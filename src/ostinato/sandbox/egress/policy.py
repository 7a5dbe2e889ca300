"""Which names and addresses a sandbox may reach. Pure functions but for the resolver that is given.

A name is resolved here and the address that was checked is the one that is connected to: what the name says a
moment later does not matter (DNS rebinding). Addresses that are not the public internet's are refused, also
when an allowed name leads to them (server-side request forgery), except in the networks the policy lists.
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


class Refused(Exception):  # noqa: N818 - the policy at work, nothing went wrong
    """A connection that the policy does not allow: says which rule, and what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    host: str
    below: bool
    """True for `*.host`: every name below it and not the host itself."""
    port: int

    def covers(self, host: str, port: int) -> bool:
        return port == self.port and (host.endswith("." + self.host) if self.below else host == self.host)


class Rules:
    """A policy, read; raises SandboxError for an entry that is not one."""

    def __init__(self, policy: Egress, resolve: Resolve | None = None) -> None:
        self._rules = tuple(_rule(entry) for entry in policy.allow)
        self._inspected = tuple(_rule(entry) for entry in policy.inspect)
        self._networks = tuple(_network(entry) for entry in policy.networks)
        self._resolve = resolve or _ask_the_system

    def names(self, host: str) -> bool:
        """Whether there is a rule for a host, at whatever port."""
        return any(rule.covers(host, rule.port) for rule in self._rules)

    def inspects(self, host: str, port: int) -> bool:
        """Whether what is said to a host is to be looked into."""
        return any(rule.covers(host, port) for rule in self._inspected)

    async def route(self, host: str, port: int) -> str:
        """The address to connect to for `host`; raises Refused."""
        name = plain_name(host)
        if not any(rule.covers(name, port) for rule in self._rules):
            raise Refused(f"{name}:{port} is not allowed: add it to the policy's `allow`")
        try:
            found = await self._resolve(name, port)
        except OSError as error:
            raise Refused(f"{name} has no address: {error.strerror or error}") from error
        for text in found:  # one bad address among good ones is enough
            self._check_address(name, ipaddress.ip_address(text.partition("%")[0]))
        if not found:
            raise Refused(f"{name} has no address")
        return found[0]

    def _check_address(self, name: str, address: Address) -> None:
        real = _unwrapped(address)
        if real.is_global and not real.is_multicast:
            return
        if not any(real in network for network in self._networks):
            raise Refused(f"{name} leads to {real}, inside: add its network to the policy's `networks`")


def plain_name(host: str) -> str:
    """A host in the form that rules are written in; raises Refused for what is neither name nor address."""
    name = host.lower().removesuffix(".")
    bare = name.removeprefix("[").removesuffix("]")
    if ":" in bare:
        return str(_address(bare))
    if not _NAME.match(name):
        raise Refused(f"{host[:100]!r} is not a host: give a name in ASCII (xn--… for others) or an address")
    return name


def split_target(target: str, default_port: int | None = None) -> tuple[str, int]:
    """`host:port` in its parts; raises Refused."""
    host, colon, port = target.rpartition(":")
    if not colon or host.startswith("[") != host.endswith("]") or port.endswith("]"):
        host, port = target, ""
    if not port and default_port is not None:
        return plain_name(host), default_port
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise Refused(f"{target[:100]!r} names no port: write host:port")
    return plain_name(host), int(port)


def _rule(entry: str) -> _Rule:
    try:
        host, port = split_target(entry.removeprefix("*."))
    except Refused as error:
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
        raise Refused(f"{text[:100]!r} is not an address") from None


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 one carries: mapped, 6to4, Teredo and NAT64 all lead to it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    teredo = address.teredo
    inner = address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
    if inner is None and address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def _ask_the_system(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]
