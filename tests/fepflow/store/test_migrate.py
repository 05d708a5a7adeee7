import re
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import JSON, Connection, MetaData, Numeric, Table, inspect, select, text

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.database import Database
from fepflow.store.maintenance import check_integrity
from fepflow.store.migrate import is_current
from fepflow.store.records import (
    API_KEY,
    AUDIT_ENTRY,
    BLOB,
    GRADER,
    METADATA,
    PAGE_SESSION,
    PREFERENCE,
    RUN_REQUEST,
    TEST_CASE,
    Calibration,
    LabelDraw,
    NewCheckResult,
    NewLabel,
    NewOutput,
    StoredReport,
)
from fepflow.store.store import Store

from .processes import received, started
from .writers import open_store

Rows = dict[str, list[dict[str, Any]]]


def tables(store: Store) -> set[str]:
    with store._database.reading() as connection:
        return set(inspect(connection).get_table_names())


def difference_from_models(database: Database) -> list[Any]:
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, METADATA))


def shape(database: Database) -> dict[str, dict[str, Any]]:
    """All that the database itself says of its tables."""
    with database.reading() as connection:
        seen = inspect(connection)
        return {
            table: {
                "columns": {
                    column["name"]: (str(column["type"]), column["nullable"], column["default"])
                    for column in seen.get_columns(table)
                },
                "key": seen.get_pk_constraint(table),
                "foreign": sorted(seen.get_foreign_keys(table), key=str),
                "unique": sorted(seen.get_unique_constraints(table), key=str),
                "indexes": sorted(seen.get_indexes(table), key=str),
                "checks": sorted(seen.get_check_constraints(table), key=str),
            }
            for table in seen.get_table_names()
        }


def rows(database: Database) -> Rows:
    """Everything that is in the database, read without our models."""
    found = MetaData()
    with database.reading() as connection:
        found.reflect(connection)
        return {
            table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]
            for table in found.sorted_tables
            if table.name != "alembic_version"
        }


def only(columns: Rows, kept: Rows) -> Rows:
    """`kept` with the columns that `columns` has, too."""
    return {
        table: [{name: row[name] for name in some[0]} for row in kept[table]] for table, some in columns.items() if some
    }


@pytest.fixture
def filled(store: Store, make_run) -> Store:
    """A store with something in every table and every column."""
    for number in range(3):
        run = make_run(f"run-{number}", cases=20, repeats=2, tags=["a"], suite_path="x", flow_run_id=f"flow-{number}")
        result = CheckResult(check_type="c", status="completed", results={"passed": True}, evaluated_at=utc_now())
        keys = [(case_index, repeat) for case_index in range(20) for repeat in range(2)]
        store.leases.acquire(run, "me", 60)
        store.leases.acquire_shard(run, 0, "me", 60)
        store.results.write(
            run,
            [NewOutput(*key, "a" * 64, Output(value="\0", id="o", metadata={"tokens": 1})) for key in keys],
            [NewCheckResult(*key, "c\0é", "b" * 64, result, True) for key in keys],
        )
    store.results.cache_responses(
        {"k" * 64: CachedResponse("judge", "a/b", "b", "prompt", "{}\0é", 1, 2, 0.5, ("seed",))}
    )
    store.labels.add_calibration(
        Calibration(
            judge="a" * 64,
            rubric="b" * 64,
            model="m",
            parameters={},
            check_id="c\0é",
            field="passed",
            run_id="run-0",
            n=20,
            missing=0,
            statistics={"kappa": {}},
        )
    )
    store.reports.add(
        [
            StoredReport(
                id="f" * 64,
                source="a\0é.json",
                report_id="r",
                model_name="m\0é",
                model_source="hf",
                evaluated_at=utc_now(),
                tasks=[],
                report={"tasks": [{"task_ref": "\0é"}]},
                warnings=["w"],
            )
        ]
    )
    store.runs.set_baseline("s\0é", "main", "run-0")
    drawn = LabelDraw(run_id="run-0", check_id="c\0é", seed=2**62, case_ids=["a", "\0é"])
    store.labels.add_draw(drawn)
    store.labels.add(NewLabel("run-0", 1, 1, "c\0é", "passed", "w\0é", "ann\0é", "n\0é", drawn.id))
    add_network_rows(store)
    store.leases.finish(
        "run-0", "me", "completed", outcome="pass", metrics=[1], verdict={}, stats={"calls": 1}, error="e"
    )
    store.reports.set_run_reports([(store.runs.get("run-0"), None)])
    return store


def add_network_rows(store: Store) -> None:
    at, name = utc_now(), "n\0é"
    new: dict[Table, dict[str, Any]] = {
        BLOB: {"digest": "9" * 64, "size": 1, "noted_at": at},
        API_KEY: {"id": "k", "name": name, "secret_hash": "a" * 64, "scopes": ["read"], "expires_at": at},
        AUDIT_ENTRY: {"at": at, "caller": name, "source": "::1", "action": "POST", "resource": name, "outcome": "200"},
        PAGE_SESSION: {"id_hash": "c" * 64, "key_id": "k", "expires_at": at},
        TEST_CASE: {"id": "t", "data": {"input": name}},
        GRADER: {"id": "g", "name": name, "checks": []},
        PREFERENCE: {
            "pair": "d" * 64,
            "question_hash": "e" * 64,
            "is_judge": False,
            "given_by": name,
            "question": name,
            "preferred": None,
            "left_output": "f" * 64,
        },
        RUN_REQUEST: {"run_id": "run-0", "kind": "evaluations", "request_hash": "b" * 64, "request": {}},
    }

    def insert_all(connection: Connection) -> None:
        for table, row in new.items():
            connection.execute(table.insert().values({"created_at": at, **row} if "created_at" in table.c else row))

    store._database.write(insert_all)


def test_the_migrations_make_exactly_the_tables_of_the_models(make_url_of_empty):
    with Store.open(make_url_of_empty()) as store:
        assert difference_from_models(store._database) == []
        assert tables(store) == {"alembic_version", *METADATA.tables}
        with store._database.reading() as connection:
            (of_blobs,) = [index for index in inspect(connection).get_indexes("output") if "blob" in str(index["name"])]
        assert any("blob IS NOT NULL" in str(option) for option in of_blobs["dialect_options"].values())


def test_no_column_can_hold_a_nan_that_a_comparison_would_take_for_a_pass():
    # For PostgreSQL NaN >= 0.9 is true: a column of numbers with a fraction would need a CHECK.
    types = {type(column.type) for table in METADATA.sorted_tables for column in table.c}

    assert not [kind for kind in types if issubclass(kind, Numeric | JSON)]


def test_a_database_that_was_migrated_still_refuses_rows_without_a_parent(store: Store, make_run):
    store._database.migrate()

    make_run(cases=1)
    with pytest.raises(InfrastructureError, match="belong to is not there"):
        store.results.write("run-1", [NewOutput(7, 0, "a" * 64, Output(value=1))], [])


def test_rows_stay_when_the_table_that_they_refer_to_is_altered(filled: Store, later_version):
    database = filled._database
    before = rows(database)

    assert database.migrate() == (later_version, "9000")
    assert only(before, rows(database)) == before
    assert database.migrate(later_version, back=True) == ("9000", later_version)

    assert rows(database) == before
    assert difference_from_models(database) == []


def test_a_downgrade_has_to_be_requested(store: Store, later_version):
    store._database.migrate()

    with pytest.raises(UserError, match=rf"has schema 9000; {later_version} is older, .* lost: .* add --yes"):
        store._database.migrate(later_version)

    with store._database.reading() as connection:
        assert is_current(connection)


def test_an_unknown_revision_is_refused(store: Store):
    with pytest.raises(UserError, match="There is no schema 0000: this fepflow knows 0001"):
        store._database.migrate("0000", back=True)


def test_opening_a_store_again_keeps_its_runs(url, store, make_run):
    make_run()

    with Store.open(url) as again:
        assert again.runs.get("run-1").n_cases == 3


def test_a_database_of_a_newer_version_is_refused_in_a_sentence(url, store):
    store._database.write(
        lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    )

    with pytest.raises(
        InfrastructureError, match=r"written by a newer fepflow \(its schema is 9999\): upgrade fepflow"
    ):
        Store.open(url)


@pytest.mark.parametrize("written", ["0002", "0014", "0001"])
def test_a_store_from_before_the_first_release_is_refused_in_a_sentence(url, store, written):
    def make_older(connection: Connection) -> None:
        connection.execute(text("UPDATE alembic_version SET version_num = :written"), {"written": written})
        if written == "0001":  # the same number as today's schema, with fewer tables
            connection.execute(text("ALTER TABLE blob RENAME TO no_blob"))

    store._database.write(make_older)

    advice = r"from before the first release .*, which is not upgraded: keep it .* FEPFLOW_STORE_URL"
    with pytest.raises(InfrastructureError, match=advice):
        Store.open(url)
    assert re.search(advice, " ".join(check_integrity(url).problems))


def test_a_migration_that_dies_half_way_leaves_nothing_behind(make_url_of_empty, monkeypatch):
    from alembic import command

    upgrade = command.upgrade

    def upgrade_and_die(*arguments: Any) -> None:
        upgrade(*arguments)
        raise KeyboardInterrupt

    url = make_url_of_empty()
    monkeypatch.setattr(command, "upgrade", upgrade_and_die)
    with pytest.raises(KeyboardInterrupt):
        Store.open(url)
    monkeypatch.undo()

    database = Database(url)
    assert shape(database) == {}
    with database.reading() as connection:
        assert not is_current(connection)
    database.close()
    with Store.open(url) as store:
        assert store.runs.newest() == []


@pytest.mark.battery
def test_processes_that_open_a_new_store_at_once_do_not_collide(make_url_of_empty):
    url = make_url_of_empty()
    with (
        started(open_store, url) as (_, first),
        started(open_store, url) as (_, second),
        started(open_store, url) as (_, third),
        started(open_store, url) as (_, fourth),
    ):
        assert [received(connection) for connection in (first, second, third, fourth)] == [[0]] * 4
