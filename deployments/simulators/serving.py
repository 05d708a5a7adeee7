"""The server of a simulator."""

from __future__ import annotations

import asyncio
import signal

import click
from aiohttp import web


def run(app: web.Application, port: int) -> None:
    """As `serve`; what is wrong with the port is a sentence."""
    try:
        asyncio.run(serve(app, port))
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror} (choose another --port; 0 picks a free one)"
        ) from None


async def serve(app: web.Application, port: int) -> None:
    """Listen on 127.0.0.1 until SIGTERM or SIGINT; prints the address once it answers. OSError: the port is taken."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        click.echo(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stop.wait()
    finally:
        await runner.cleanup()
