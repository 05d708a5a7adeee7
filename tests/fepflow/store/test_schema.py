import subprocess
import sys

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from fepflow.errors import InfrastructureError
from fepflow.store.schema import is_current, migrations
from fepflow.store.store import Store
from fepflow.store.tables import METADATA


def tables(store: Store) -> set[str]:
    with store._database.reading() as connection:
        return set(inspect(connection).get_table_names())


def test_the_migrations_make_exactly_the_tables_of_the_models(store):
    with store._database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        difference = compare_metadata(context, METADATA)

    assert difference == []
    assert tables(store) == {"alembic_version", *METADATA.tables}


def test_a_database_is_current_with_the_newest_migration_and_no_other(store):
    with store._database.reading() as connection:
        assert is_current(connection)
    store._database.write(lambda connection: command.downgrade(migrations(connection), "base"))
    with store._database.reading() as connection:
        assert not is_current(connection)


def test_the_migrations_go_down_to_nothing_and_up_again(store, make_run):
    store._database.write(lambda connection: command.downgrade(migrations(connection), "base"))
    assert tables(store) == {"alembic_version"}

    store._database.write(lambda connection: command.upgrade(migrations(connection), "head"))
    assert store.run(make_run()).n_cases == 3


def test_opening_again_keeps_what_is_there(url, store, make_run):
    make_run()

    with Store.open(url) as again:
        assert again.run("run-1").n_cases == 3


def test_a_database_of_a_newer_version_is_refused_in_a_sentence(url, store):
    store._database.write(
        lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    )

    with pytest.raises(
        InfrastructureError, match=r"written by a newer fepflow \(its schema is 9999\): upgrade fepflow"
    ):
        Store.open(url)


def test_an_upgrade_that_dies_half_way_leaves_nothing_behind(store):
    def upgrade_and_die(connection):
        command.downgrade(migrations(connection), "base")
        command.upgrade(migrations(connection), "head")
        command.downgrade(migrations(connection), "base")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store._database.write(upgrade_and_die)

    assert tables(store) == {"alembic_version", *METADATA.tables}


def test_processes_that_open_a_new_store_at_once_do_not_collide(url):
    program = f"from fepflow.store.store import Store; Store.open({url!r}).runs()"
    openers = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(4)]

    errors = [opener.communicate()[1].decode() for opener in openers]

    assert errors == [""] * 4
