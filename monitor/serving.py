"""The daemon's address: opening it, and closing it without waiting for slow readers."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress

from aiohttp import web

from monitor.config.outputs import ListenConfig

CLOSE_SECONDS = 1.0
"""How long readers that do not take their answers may hold up a stop."""


class CannotListen(Exception):
    """The address is taken or not this host's; one line for the operator."""


async def listen_on(runner: web.AppRunner, listen: ListenConfig) -> str:
    """Open the address and give the URL served. Raises CannotListen."""
    try:
        await _site(runner, listen.host, listen.port).start()
    except (OSError, UnicodeError) as error:
        raise CannotListen(
            f"cannot listen on {listen.address}: {_plain(error)}; choose another with "
            "listen.address in the configuration, or --listen where a command has it"
        ) from error
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"http://{host}:{runner.addresses[0][1]}/"


async def close(runner: web.AppRunner) -> None:
    """Answer what is under way, for a second at most, and close the address."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await runner.cleanup()


def _site(runner: web.AppRunner, host: str, port: int) -> web.BaseSite:
    if host != "::" or not socket.has_dualstack_ipv6():
        return web.TCPSite(runner, host, port)
    # asyncio makes `::` IPv6 only; the operator means every interface.
    both = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return web.SockSite(runner, both)


def _plain(error: OSError | UnicodeError) -> str:
    """What the system says, without the words that asyncio puts around it."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error)
