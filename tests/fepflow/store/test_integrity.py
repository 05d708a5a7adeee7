import pytest
from sqlalchemy import text

from fepflow.errors import InfrastructureError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.database import Database
from fepflow.store.maintenance import SPELLED_OUT, check_integrity
from fepflow.store.records import METADATA, NewCheckResult, NewOutput
from fepflow.store.store import Store


@pytest.fixture
def filled(store: Store, make_run) -> Store:
    make_run("run-0", cases=30)
    make_run("run-1", cases=30)
    result = CheckResult(check_type="c", status="completed", results={"passed": True}, evaluated_at=utc_now())
    outputs = [NewOutput(case_index, 0, "a" * 64, Output(value="\0", metadata={})) for case_index in range(30)]
    store.results.write(
        "run-1", outputs, [NewCheckResult(case_index, 0, "c\0é", "b" * 64, result, True) for case_index in range(30)]
    )
    return store


def damage(store: Store, *statements: str) -> None:
    """Do what no database allows that minds its foreign keys."""

    def work(connection):
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement))

    database = store._database
    with database.engine.execution_options(writes=True, migrates=True).begin() as connection:
        work(connection)
    database.engine.dispose()


def test_a_whole_store_has_no_problems(filled: Store, url):
    report = check_integrity(url)

    assert report.problems == []
    filled_tables = {"run": 2, "run_case": 60, "output": 30, "check_result": 30, "metric_total": 3}
    assert report.rows == {**dict.fromkeys(METADATA.tables, 0), **filled_tables}
    assert report.revision is not None
    assert report.version.split()[0] in ("SQLite", "PostgreSQL")


@pytest.mark.parametrize(
    ("statement", "problems"),
    [
        (
            "DELETE FROM run_case WHERE case_index = 3 AND run_id = 'run-1'",
            [
                "Run run-1 has 29 test cases, not 30.",
                "check_result run-1/3/0/c\0é has no row in run_case.",
                "output run-1/3/0 has no row in run_case.",
            ],
        ),
        ("DELETE FROM output WHERE case_index = 4", ["check_result run-1/4/0/c\0é has no row in output."]),
        (
            "UPDATE output SET value = '{' WHERE case_index = 5",
            ["output run-1/5/0: value cannot be read (JSONDecodeError)."],
        ),
        (
            "UPDATE output SET metadata = '[]' WHERE case_index = 5",
            ["output run-1/5/0: metadata cannot be read (ValidationError)."],
        ),
        ("UPDATE run SET name = '\\x' WHERE id = 'run-0'", ["run run-0: name cannot be read (JSONDecodeError)."]),
        (
            "UPDATE run_case SET data = '{}' WHERE case_index = 6 AND run_id = 'run-0'",
            ["run_case run-0/6: data cannot be read (ValidationError)."],
        ),
        (
            "UPDATE check_result SET result = 'null' WHERE case_index = 7",
            ["check_result run-1/7/0/c\\u0000\\u00e9: result cannot be read (ValidationError)."],
        ),
    ],
)
def test_each_damage_is_named_with_its_row(filled: Store, url, statement, problems):
    damage(filled, statement)

    assert sorted(check_integrity(url).problems) == sorted(problems)


def test_of_many_problems_the_first_are_named_and_the_others_counted(filled: Store, url):
    damage(filled, "UPDATE run_case SET data = '}'")

    problems = check_integrity(url).problems

    assert len(problems) == SPELLED_OUT + 1
    assert problems[-1] == "… and 40 more like these."


def test_an_empty_database_and_one_of_another_version_are_not_looked_into(make_url_of_empty, later_version):
    database = Database(url := make_url_of_empty())
    newer = text("UPDATE alembic_version SET version_num = '9999'")

    (empty,) = check_integrity(url).problems
    database.migrate(later_version)
    (older,) = check_integrity(url).problems
    database.write(lambda connection: connection.execute(newer))
    (other,) = check_integrity(url).problems
    database.close()

    assert empty == "The database has no tables of fepflow's: `fepflow store migrate` makes them."
    assert f"The schema is {later_version}, and 9000 is the newest: `fepflow store migrate`" in older
    assert "written by a newer fepflow (its schema is 9999)" in other


def test_a_store_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(InfrastructureError, match=r"none\.db is not there"):
        check_integrity(f"sqlite:///{tmp_path}/none.db")

    assert list(tmp_path.iterdir()) == []
