"""TLS in front of servers whose builds have none: a CA made for the test, and a proxy that speaks TLS to clients.

The wheels' Postgres and Valkey link no TLS library. A client cannot tell the proxy from a server that does: Postgres'
request for TLS (SSLRequest, https://www.postgresql.org/docs/current/protocol-flow.html) is answered here.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


class Authority:
    """A certificate authority in a folder; `certificate` is its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = folder / "ca.pem", folder / "ca.key"
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._request("ca", "-x509", "-subj", "/CN=Thothy test CA", *usage, "-out", str(self.certificate))

    def server(self, name: str) -> ssl.SSLContext:
        """A server's context, with a certificate for `localhost` and nothing else."""
        signing, certificate = self.folder / f"{name}.csr", self.folder / f"{name}.pem"
        self._request(name, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", str(signing))
        ca = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-days", "2")
        _openssl("x509", "-req", "-in", str(signing), *ca, "-copy_extensions", "copy", "-out", str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, self.folder / f"{name}.key")
        return context

    def _request(self, name: str, *arguments: str) -> None:
        _openssl("req", *KEY, "-keyout", str(self.folder / f"{name}.key"), *arguments)


@contextmanager
def tls_proxy(context: ssl.SSLContext, port: int, *, postgres: bool = False) -> Iterator[int]:
    """A port of localhost with TLS, in front of the plain `port`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, port, postgres), daemon=True).start()
        yield int(listener.getsockname()[1])


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int, postgres: bool) -> None:
    with suppress(OSError):  # the listener was closed
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, context, port, postgres), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, port: int, postgres: bool) -> None:
    with suppress(OSError), client:  # ssl.SSLError is one: a client that trusts another CA
        if postgres:
            if client.recv(8, socket.MSG_WAITALL) != SSL_REQUEST:
                return  # no plain text is let through
            client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as secure,
            socket.create_connection(("127.0.0.1", port)) as server,
        ):
            _relay(secure, server)


def _relay(secure: ssl.SSLSocket, plain: socket.socket) -> None:
    """Both ways, from one thread: an SSL object is not for two."""
    secure.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(secure, selectors.EVENT_READ)
        selector.register(plain, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is plain:
                    if not (data := plain.recv(65536)):
                        return
                    secure.setblocking(True)
                    secure.sendall(data)
                    secure.setblocking(False)
                elif not _decrypt(secure, plain):
                    return


def _decrypt(secure: ssl.SSLSocket, plain: socket.socket) -> bool:
    """Pass on what has come; False at the end."""
    while True:
        try:
            data = secure.recv(65536)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        if not data:
            return False
        plain.sendall(data)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
