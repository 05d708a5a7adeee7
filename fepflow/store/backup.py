"""A copy of the store as it is at one moment, while others read and write it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import IO

from fepflow.errors import InfrastructureError, UserError
from fepflow.store.database import Database

_NO_PG_DUMP = (
    "pg_dump, which makes backups of PostgreSQL, is not on PATH: install PostgreSQL's client programs of the server's "
    "version or newer, or run `pg_dump --format=custom` where they are."
)


def back_up(url: str, target: Path) -> str:
    """Write the store at `url` to the new file `target` (0600), and say where the store is.

    A SQLite store becomes a SQLite file, which is a store; one on PostgreSQL becomes an archive for pg_restore. When
    this fails there is no file. Raises UserError if there is something at `target` already, InfrastructureError.
    """
    database = Database(url, create=False)
    try:
        with _new_file(target) as file:
            try:
                if database.file:
                    _vacuum_into(database, target)
                else:
                    _dump(database, file)
                os.fsync(file.fileno())
            except BaseException:
                target.unlink()
                raise
        return database.location
    finally:
        database.close()


def _new_file(path: Path) -> IO[bytes]:
    try:
        return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "wb")
    except FileExistsError:
        raise UserError(f"{path} is there already, and a backup overwrites nothing: name a new file.") from None
    except OSError as error:
        raise InfrastructureError(
            f"{path} cannot be written ({error.strerror}): name a file in a folder of yours."
        ) from error


def _vacuum_into(database: Database, target: Path) -> None:
    with database.outside_transactions() as connection:
        connection.exec_driver_sql("VACUUM INTO ?", (str(target),))


def _dump(database: Database, file: IO[bytes]) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise InfrastructureError(_NO_PG_DUMP)
    # By the environment, because all users of the machine see the arguments of a command.
    env = {**os.environ, **_libpq_variables(database)}
    command = [program, "--format=custom", "--no-password", "--no-owner", "--no-privileges"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False)  # noqa: S603  # a program of PATH, words of ours
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise InfrastructureError(
            f"{database.location} was not backed up: {' '.join(errors[-3:])}. If it is about versions: the first "
            f"pg_dump on PATH is {program}, and it has to be of the server's version or newer."
        )


def _libpq_variables(database: Database) -> dict[str, str]:
    """The variables that make PostgreSQL's programs use the database as we do."""
    from psycopg.pq import Conninfo

    _, parameters = database.engine.dialect.create_connect_args(database.engine.url)
    parameters = {"dbname" if name == "database" else name: value for name, value in parameters.items()}
    return {
        option.envvar.decode(): str(parameters[option.keyword.decode()])
        for option in Conninfo.get_defaults()
        if option.envvar and parameters.get(option.keyword.decode()) is not None
    }
