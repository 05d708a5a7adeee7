"""`fepflow up`, `down`, `status`, `serve`: the local Prefect server, and the stack of one machine."""

from __future__ import annotations

import os
import sys
from shlex import quote

import click

from fepflow.cli.env_file import note_untaken_variables


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on (default: FEPFLOW_PORT, or 4200).")
def up(port: int | None) -> None:
    """Start the local Prefect server, unless one runs or is configured.

    It listens on 127.0.0.1 only and outlives this command. A Prefect API that Prefect's settings name
    (PREFECT_API_URL, the active profile) is used instead, unless that is the local server's own address.
    """
    from fepflow.services import prefect_api

    _print(prefect_api.prefect_api(port))


@click.command()
def down() -> None:
    """Stop the local Prefect server; what it has recorded stays."""
    from fepflow.services import prefect_api

    stopped = prefect_api.stop_local_server()
    click.echo(f"Stopped the server at {stopped.ui_url}." if stopped else "No local server was running.")


@click.command()
@click.option("--env", "as_env", is_flag=True, help='Print shell lines only: eval "$(fepflow status --env)".')
def status(as_env: bool) -> None:
    """Say which Prefect API is used, and where results are stored."""
    from fepflow.services import prefect_api

    api = prefect_api.running_api()
    if as_env:
        if api is None:
            raise click.ClickException("no server is running: fepflow up")
        for name, value in api.environment.items():
            click.echo(f"export {name}={quote(value)}")
    elif api is None:
        click.echo("No Prefect server is running; `fepflow up` starts one, and so does `fepflow run`.")
    else:
        _print(api)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that REST and gRPC listen on.")
@click.option("--behind-tls", is_flag=True, help="A proxy before them terminates TLS.")
def serve(host: str, behind_tls: bool) -> None:
    """Run the stack of one machine until Ctrl-C: server, deployments, worker, reaper, REST and gRPC.

    The deployments are those of prefect.yaml in the working directory, else the ones that come with fepflow. A Prefect
    API that Prefect's settings name is used instead of a local server. FEPFLOW_API_PORT and FEPFLOW_GRPC_PORT are the
    ports of the interfaces; on another address than this machine's own they ask for API keys.
    """
    options = ["--host", host, *(["--behind-tls"] if behind_tls else [])]
    note_untaken_variables()
    _note_ignored_files()
    # -P: no module in the working directory is imported. In place of this process: signals are its.
    command = [sys.executable, "-P", "-m", "fepflow.services.prefect_import", "fepflow.deployments.serve", *options]
    os.execv(sys.executable, command)  # noqa: S606  # no shell is wanted


def _print(api: object) -> None:
    from fepflow.services import prefect_api
    from fepflow.settings import settings

    assert isinstance(api, prefect_api.PrefectApi)
    origin = f"local server, process {api.pid}" if api.local else f"named by {prefect_api.settings_source()}"
    click.echo(f"Prefect UI   {prefect_api.without_credentials(api.ui_url)}")
    click.echo(f"Prefect API  {prefect_api.without_credentials(api.url)}  ({origin})")
    click.echo(f"Store        {prefect_api.store_location()}")
    if api.login:
        click.echo(f"UI login     the line in {settings().login_file}")
    if api.local:
        click.echo('For plain `prefect` commands in this shell: eval "$(fepflow status --env)"')
    for error in api.errors:
        click.echo(f"warning: {error}", err=True)
    _note_ignored_files()


def _note_ignored_files() -> None:
    from fepflow.prefect_settings import ignored_files

    for sentence in ignored_files():
        click.echo(f"warning: {sentence}", err=True)
