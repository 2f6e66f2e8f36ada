"""Which URLs a webhook may have, and which addresses it may lead to: public ones, and those of allowed networks.

A tenant chooses the URL, and the service calls it from inside: it must reach neither the cloud's metadata service nor
another service of this machine. A name is resolved once, each address is checked, and that address is connected to:
a name that answers differently the second time gains nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from thothy_ai.errors import InvalidJobError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL_LENGTH = 2000
SCHEMES = ("http", "https")
NAT64 = IPv6Network("64:ff9b::/96")


class RefusedAddressError(Exception):
    """All addresses of a host are forbidden to webhooks."""


def networks(names: Sequence[str]) -> tuple[Network, ...]:
    """The networks that are allowed although they are not public."""
    return tuple(ip_network(name) for name in names)


def resolve(host: str, port: int, allowed: Sequence[Network]) -> list[str]:
    """The allowed addresses of this host.

    Raises `RefusedAddressError`, and `OSError` if the host has no address.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    good = [address for address in addresses if is_allowed(ip_address(address), allowed)]
    if not good:
        where = host if host in addresses else f"{host} ({addresses[0]})"
        raise RefusedAddressError(f"{where} is not a public address; THOTHY_WEBHOOK_NETWORKS can allow its network")
    return good


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Whether an address, and any IPv4 address embedded in it, is public or in an allowed network."""
    if isinstance(address, IPv6Address):  # can embed an IPv4 address: mapped, 6to4, Teredo or NAT64
        inner = IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else address.ipv4_mapped or address.sixtofour
        inner = inner or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return is_allowed(inner, allowed)
    if any(address.version == network.version and address in network for network in allowed):
        return True
    return address.is_global and not address.is_multicast and not address.is_reserved


def checked_url(url: object) -> str:
    """The URL of a webhook. Its address is checked at the call. Raises `InvalidJobError`."""
    if not isinstance(url, str) or not 0 < len(url) <= MAX_URL_LENGTH:
        raise InvalidJobError("webhook", f"must be a URL of 1 to {MAX_URL_LENGTH} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidJobError("webhook", "must be printable ASCII without spaces: percent-encode other characters")
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading the port validates it
    except ValueError:
        raise InvalidJobError("webhook", "is not a URL") from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise InvalidJobError("webhook", "must look like https://host/path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidJobError("webhook", "must have no user, no password and no fragment")
    return parts.geturl()  # with a lower-case scheme
