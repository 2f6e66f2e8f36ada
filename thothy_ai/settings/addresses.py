"""Addresses in URLs: one form for the hosts of a database, and host names for messages, without user or password.

Postgres' own clients take `h1:5432,h2:5433/db`, `?host=h1,h2&port=5432,5433` and, since SQLAlchemy,
`?host=h1:5432&host=h2:5433`. Here all three become the second form, which every library in use reads.
"""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import SecretStr

NO_URL: Final = "is not a URL (special characters in a password must be percent-encoded)"
DEFAULT_PORTS: Final = {"redis": 6379, "rediss": 6379}
POSTGRES_PORT: Final = 5432
MAX_PORT: Final = 65535
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::(\d*))?")  # with its port


class Host(NamedTuple):
    """A host's name, address or folder of sockets, and its port."""

    name: str
    port: int

    def __str__(self) -> str:
        if self.name.startswith("/"):
            return self.name
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


def split_url(url: str) -> SplitResult:
    """Split a URL of one host. Raises `ValueError` without the library's own message, which may quote a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading the port validates it
    except ValueError:
        raise ValueError(NO_URL) from None
    return parts


def database_url_in_one_form(url: str) -> str:
    """This URL with its hosts as `?host=…&port=…` if there are several, or sockets, or hosts in the query.

    A single plain host stays where it is. Of several hosts, the one that accepts writes is used, unless the URL says
    otherwise. Raises `ValueError`.
    """
    scheme, login, location, path, query = _parts(url)
    hosts = _hosts(url)
    named = parse_qs(query)
    if len(hosts) == 1 and not {"host", "hostaddr"} & named.keys() and "%" not in location:
        return url
    others = [(name, value) for name, value in parse_qsl(query) if name not in {"host", "port"}]
    if "host" not in named:  # libpq reads addresses there, SQLAlchemy does not count them
        others = [(name, value) for name, value in others if name != "hostaddr"]
    if len(hosts) > 1 and "target_session_attrs" not in named:
        others.append(("target_session_attrs", "read-write"))
    places = [("host", ",".join(host.name for host in hosts)), ("port", ",".join(str(host.port) for host in hosts))]
    return f"{scheme}://{login}{path}?{urlencode([*places, *others], safe=',:/', quote_via=quote)}"


def with_password(url: SecretStr, password: SecretStr | None) -> str:
    """The URL with the password, unless it has one already."""
    text = url.get_secret_value()
    parts = urlsplit(text)
    if password is None or parts.password is not None:
        return text
    user, _, host = parts.netloc.rpartition("@")
    secret = quote(password.get_secret_value(), safe="")
    return text.replace(f"//{parts.netloc}", f"//{user.removesuffix(':')}:{secret}@{host}", 1)


def endpoint(url: str) -> str:
    """`host:port` of each host, or the socket path of a URL, for messages: never the user or password."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else ", ".join(map(str, _hosts(url)))


def _hosts(url: str) -> list[Host]:
    """The hosts of a URL, by libpq's rules. Raises `ValueError`."""
    scheme, _, location, _, query = _parts(url)
    named = parse_qs(query)
    entries = ",".join(named.get("host") or named.get("hostaddr") or [unquote(location)]).split(",")
    ports = ",".join(named.get("port", ())).split(",")
    if len(ports) not in {1, len(entries)}:
        raise ValueError(f"names {len(entries)} hosts and {len(ports)} ports")
    hosts = []
    for entry, port in zip(entries, ports * (len(entries) // len(ports)), strict=True):
        found = _HOST.fullmatch(entry)
        name, own = found.groups() if found else (entry, None)
        number = str(own or port or DEFAULT_PORTS.get(scheme, POSTGRES_PORT))
        with suppress(ValueError):
            known = found is not None or ip_address(entry)  # IPv6 without brackets
            if known and number.isdecimal() and int(number) <= MAX_PORT:
                hosts.append(Host(name.strip("[]") or "localhost", int(number)))
    if len(hosts) < len(entries):
        raise ValueError(NO_URL)
    return hosts


def _parts(url: str) -> tuple[str, str, str, str, str]:
    """Scheme, login with its `@`, location, path and query. `urlsplit` refuses brackets that are not at the start."""
    scheme, _, rest = url.partition("://")
    before, _, query = rest.partition("#")[0].partition("?")
    netloc, slash, path = before.partition("/")
    login, at, location = netloc.rpartition("@")
    return scheme, login + at, location, slash + path, query
