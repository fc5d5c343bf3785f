"""The address of a server, taken before anything is started or promised on it."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.kernel.errors import BadSetting


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Sockets for every address of the host, not listening yet; raises BadSetting if one is taken.

    Until the server listens callers are refused, which tells them more than an answer that waits.
    """
    sockets: list[socket.socket] = []
    try:
        with said_plainly(host, port, option="--port"):
            found = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                sockets.append(socket.socket(family, socket.SOCK_STREAM))
                _bind(sockets[-1], address)
        yield sockets
    finally:
        for one in sockets:
            one.close()


@contextmanager
def said_plainly(host: str, port: int, *, option: str) -> Iterator[None]:
    """Turn what the system says of an address into an error that names it and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} of {host} is in use"
            happened = "another process listens there, so nothing was started."
        else:
            what = f"cannot listen on port {port} of {host}: {error.strerror}"
            happened = "the system does not give this address away, so nothing was started."
        todo = f"give another one with {option}, or end the process that has it."
        raise BadSetting(what, happened=happened, todo=todo) from error


def _bind(one: socket.socket, address: tuple[object, ...]) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if one.family == socket.AF_INET6:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind(address)
