"""Which addresses outgoing calls may reach. Pure rules, no network.

A URL in a table is code chosen by data: without this, whoever may write a webhook address can make
the worker call the cloud's metadata service or a database on the same network. Names are checked
twice: the URL when it is saved and used, and the resolved address of every connection, because a
name may resolve to something else a moment later.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import SplitResult, urlsplit

from penstock.kernel.http_errors import AddressRefused

PUBLIC_PORTS = frozenset({443, 8443})
URL_LENGTH_MAX = 2048

# `is_global` of Python 3.11 is true for all of these, and none of them is a public web server.
_DENIED_V4 = (ipaddress.IPv4Network("192.88.99.0/24"),)
_DENIED_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible, ::127.0.0.1
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # local NAT64
        "2001::/23",  # Teredo, ORCHID and other special purposes
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)


def refusal(address: IPv4Address | IPv6Address) -> str | None:
    """Why an address is not public, or None if it is; IPv4 inside IPv6 is unwrapped."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return refusal(address.ipv4_mapped)
        denied = any(address in network for network in _DENIED_V6)
    else:
        denied = any(address in network for network in _DENIED_V4)
    if denied or address.is_multicast or address.is_reserved or not address.is_global:
        return f"{address} is not a public address"
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that passed the first check; `named` means its host is on the allow-list."""

    url: str
    scheme: str
    host: str
    port: int
    named: bool


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Public https by default; hosts and networks on the allow-list may be private and plain."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    ports: frozenset[int] = field(default=PUBLIC_PORTS)

    @classmethod
    def allowing(cls, entries: Iterable[str]) -> "AddressPolicy":
        """The policy for the entries of `http_allow_private`: host names and networks."""
        hosts: set[str] = set()
        networks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                hosts.add(_plain_host(entry))
        return cls(frozenset(hosts), tuple(networks))

    def check_url(self, url: str) -> Target:
        """The parts of a URL that may be called; raises AddressRefused with the reason.

        Settles what the URL alone tells. A plain http URL by name may pass here and still be
        refused when connecting, where its address is known.
        """
        parts = _split(url)
        host = _plain_host(parts.hostname or "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        named = host in self.hosts
        literal = _literal(host)
        inside = literal is not None and self.contains(literal)
        if parts.scheme == "http" and not named and not inside and not self._may_resolve(literal):
            raise AddressRefused(f"{_shown(parts)} is not https and its host is not on the list")
        if literal is not None and not named and not inside and (reason := refusal(literal)):
            raise AddressRefused(reason)
        if port not in self.ports and not named and not inside and not self._may_resolve(literal):
            raise AddressRefused(f"port {port} of {_shown(parts)} is not allowed")
        return Target(url, parts.scheme, host, port, named)

    def check_connection(self, target: Target, address: str) -> str | None:
        """Why this connection must not be made, or None; `address` is the resolved one."""
        found = _literal(address)
        if found is None:
            return f"{address!r} is not an address"
        if target.named or self.contains(found):
            return None
        if target.scheme != "https":
            return f"{target.host} is not https, and {found} is not on the list"
        if target.port not in self.ports:
            return f"port {target.port} of {target.host} is not allowed"
        return refusal(found)

    def contains(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether an address lies in a network of the allow-list; mapped IPv4 counts as IPv4."""
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)

    def _may_resolve(self, literal: IPv4Address | IPv6Address | None) -> bool:
        """Whether a name could still turn out to lie in an allowed network."""
        return literal is None and bool(self.networks)


def _split(url: str) -> SplitResult:
    if len(url) > URL_LENGTH_MAX or any(ord(c) <= 0x20 or ord(c) == 0x7F for c in url):
        raise AddressRefused("the URL is too long or holds blanks or control characters")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise AddressRefused("the URL is malformed") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "\\" in url:
        raise AddressRefused("the URL is not an https address")
    if "@" in parts.netloc:
        raise AddressRefused("the URL holds a user or password")
    return parts


def _plain_host(host: str) -> str:
    return host.rstrip(".").lower()


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _shown(parts: SplitResult) -> str:
    """Scheme and host only: path and query may hold a token."""
    return f"{parts.scheme}://{parts.hostname}"
