import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import JSON, Connection, MetaData, Numeric, Table, inspect, select, text

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.model import utc_now
from fepflow.protocol.model_response import CachedResponse
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.database import Database
from fepflow.store.integrity import check_integrity
from fepflow.store.migrate import is_current, revisions
from fepflow.store.records import Calibration, LabelDraw, NewCheckResult, NewLabel, NewOutput, StoredReport
from fepflow.store.store import Store
from fepflow.store.tables import API_KEY, AUDIT_ENTRY, GRADER, METADATA, PAGE_SESSION, RUN_REQUEST, TEST_CASE

Rows = dict[str, list[dict[str, Any]]]

RENAMED = {
    "position": "case_index",
    "payload": "data",
    "address": "content_hash",
    "member": "field",
    "figures": "statistics",
    "model_answer": "cached_response",
    "model_answered": "response_model",
    "cost": "cost_picousd",
    "not_honoured": "dropped_params",
    "answered_at": "responded_at",
}
"""What 0007 renamed."""

FIRST, *_, LAST = revisions()
REVISIONS = [pytest.param(name, marks=() if name in (FIRST, LAST) else pytest.mark.battery) for name in revisions()]


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
    """Everything that is in the database, read without our models, by the newest names."""
    found = MetaData()
    with database.reading() as connection:
        found.reflect(connection)
        return {
            RENAMED.get(table.name, table.name): [
                {RENAMED.get(name, name): value for name, value in row.items()}
                for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()
            ]
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
        Calibration("a" * 64, "b" * 64, "m", {}, "c\0é", "passed", "run-0", 20, 0, {"kappa": {}})
    )
    store.reports.add([
        StoredReport("f" * 64, "a\0é.json", "r", "m\0é", "hf", utc_now(), [], {"tasks": [{"task_ref": "\0é"}]}, ["w"])
    ])  # fmt: skip
    store.runs.set_baseline("s\0é", "main", "run-0")
    drawn = LabelDraw("run-0", "c\0é", 2**62, ["a", "\0é"])
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
        API_KEY: {"id": "k", "name": name, "secret_hash": "a" * 64, "scopes": ["read"], "expires_at": at},
        AUDIT_ENTRY: {"at": at, "caller": name, "source": "::1", "action": "POST", "resource": name, "outcome": "200"},
        PAGE_SESSION: {"id_hash": "c" * 64, "key_id": "k", "expires_at": at},
        TEST_CASE: {"id": "t", "data": {"input": name}},
        GRADER: {"id": "g", "name": name, "checks": []},
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


def test_no_column_can_hold_a_nan_that_a_comparison_would_take_for_a_pass():
    # For PostgreSQL NaN >= 0.9 is true: a column of numbers with a fraction would need a CHECK.
    types = {type(column.type) for table in METADATA.sorted_tables for column in table.c}

    assert not [kind for kind in types if issubclass(kind, Numeric | JSON)]


@pytest.mark.parametrize("revision", REVISIONS)
def test_downgrade_to_any_revision_and_upgrade_keep_rows_and_schema(filled: Store, revision):
    database = filled._database
    newest, rows_before = shape(database), rows(database)
    assert all(rows_before.values())

    database.migrate(revision, back=True)
    rows_back = rows(database)
    database.migrate()

    assert rows_back == only(rows_back, rows_before)
    assert only(rows_back, rows(database)) == rows_back
    assert shape(database) == newest
    assert difference_from_models(database) == []
    assert len(list(filled.results.by_case("run-2"))) == 40


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_schema_of_a_revision_is_the_same_from_below_and_from_above(store: Store, make_url_of_empty, revision):
    database = Database(make_url_of_empty())

    assert database.migrate(revision) == (None, revision)
    from_below = shape(database)
    database.migrate()
    assert database.migrate(revision, back=True) == (revisions()[-1], revision)

    assert shape(database) == from_below
    database.close()


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


def test_processes_that_open_a_new_store_at_once_do_not_collide(make_url_of_empty):
    program = f"from fepflow.store.store import Store; Store.open({make_url_of_empty()!r}).runs.newest()"
    openers = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(4)]

    errors = [opener.communicate()[1].decode() for opener in openers]

    assert errors == [""] * 4


FORMER_ROWS: Rows = {
    "run": [{
        "id": "run-1", "name": "refunds", "status": "completed", "created_at": "2026-01-02 03:04:05", "suite": "{}",
        "repeats": 1, "n_cases": 1, "tags": "[]",
    }],
    "run_case": [{"run_id": "run-1", "position": 0, "case_id": "a", "payload": '{"id": "a", "input": "hello"}'}],
    "output": [{
        "run_id": "run-1", "position": 0, "repeat": 0, "address": "a" * 64, "value": '"hi"', "failed": False,
        "created_at": "2026-01-02 03:04:05",
    }],
    "check_result": [{
        "run_id": "run-1", "position": 0, "repeat": 0, "check_id": "polite", "address": "b" * 64,
        "check_type": "llm_judge", "status": "completed", "passed": True, "created_at": "2026-01-02 03:04:05",
        "result": '{"check_type": "llm_judge", "status": "completed", "results": {"passed": true}, '
        '"evaluated_at": "2026-01-02T03:04:05Z"}',
    }],
    "shard": [{"run_id": "run-1", "shard": 0}],
    "model_answer": [{
        "key": "c" * 64, "kind": "judge", "model": "openai/a", "model_answered": "a-2024", "mode": "prompt",
        "text": "{}", "prompt_tokens": 1, "completion_tokens": 2, "cost": 12_300_000, "not_honoured": '["seed"]',
        "answered_at": "2026-01-02 03:04:05",
    }],
    "calibration": [{
        "id": "d" * 64, "created_at": "2026-01-02 03:04:05", "judge": "e" * 64, "rubric": "f" * 64,
        "model": "openai/a", "parameters": "{}", "check_id": "polite", "member": "passed", "run_id": "run-1", "n": 1,
        "missing": 0, "figures": '{"kappa": {"value": 0.5}}',
    }],
}  # fmt: skip
"""A row of each table, as fepflow wrote it with schema 0006."""


def insert_former_rows(database: Database) -> None:
    def insert(connection: Connection) -> None:
        for table, (row,) in FORMER_ROWS.items():
            values = ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"), row)

    database.write(insert)


def former_rows(database: Database) -> Rows:
    """The columns of `FORMER_ROWS`, read by their names; times without a zone, as they were written."""
    found = {}
    with database.reading() as connection:
        for table, (row,) in FORMER_ROWS.items():
            query = text(f"SELECT {', '.join(row)} FROM {table}")
            found[table] = [dict(each) for each in connection.execute(query).mappings()]
    times = {name for (row,) in FORMER_ROWS.values() for name in row if name.endswith("_at")}
    return {
        table: [{name: str(value)[:19] if name in times else value for name, value in row.items()} for row in some]
        for table, some in found.items()
    }


def test_a_store_of_schema_0006_is_upgraded_read_and_downgraded(make_url_of_empty):
    url = make_url_of_empty()
    database = Database(url)
    database.migrate("0006")
    insert_former_rows(database)

    with Store.open(url) as store:
        (result,) = store.results.by_case("run-1")
        assert (result.case_index, result.case.id, result.case.input) == (0, "a", "hello")
        assert result.output is not None
        assert result.output.value == "hi"
        assert [check.results for check in result.checks] == [{"passed": True}]
        assert store.results.outputs("run-1")[0, 0].content_hash == "a" * 64
        cached = store.results.cached_responses(["c" * 64], datetime(2026, 1, 1, tzinfo=UTC))["c" * 64]
        assert (cached.response_model, cached.dropped_params, cached.cost_usd) == ("a-2024", ("seed",), 0.0000123)
        calibration = store.labels.calibration_of("e" * 64, "f" * 64)
        assert calibration is not None
        assert (calibration.field, calibration.statistics) == ("passed", {"kappa": {"value": 0.5}})
        assert check_integrity(url).problems == []

    assert database.migrate("0006", back=True) == (revisions()[-1], "0006")
    rows_again = former_rows(database)
    database.close()
    assert rows_again == FORMER_ROWS
