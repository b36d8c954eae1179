"""TCP ports on loopback: which are free, which are taken, which answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Mapping

from lockstep.errors import WrongUse

__all__ = ["HOST", "check_free", "free_ports", "is_free", "listens"]

HOST = "127.0.0.1"
CONNECT_SECONDS = 1.0
RELEASE_SECONDS = 5.0
POLL_SECONDS = 0.1


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers set it: connections of an earlier run in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((HOST, port), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """Different ports that are free now; another process may take them before they are used."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return tuple(probe.getsockname()[1] for probe in probes)
    finally:
        for probe in probes:
            probe.close()


def check_free(ports: Mapping[str, tuple[int, str]], dying: Collection[int] = ()) -> None:
    """Raise WrongUse for the first taken port; `ports` maps what listens to (port, option).

    `dying` are ports of processes that are dead: the kernel may hold the socket of a killed one for
    a moment, until the last of its threads has ended. These are waited for.
    """
    deadline = time.monotonic() + RELEASE_SECONDS
    for use, (port, option) in ports.items():
        while not is_free(port):
            if port not in dying or time.monotonic() > deadline:
                raise WrongUse(
                    f"port {port} for {use} is taken",
                    expected="a free port on 127.0.0.1",
                    found="another process that listens there",
                    next_step=f"lockstep up {option} {free_ports(1)[0]}",
                )
            time.sleep(POLL_SECONDS)
