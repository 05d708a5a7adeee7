import pytest

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewOutput
from fepflow.store.store import Store


def test_rows_of_a_case_that_is_not_there_are_refused(store, make_run):
    make_run(cases=1)

    with pytest.raises(InfrastructureError, match="the run or the test case they belong to is not there"):
        store.results.write("run-1", [NewOutput(7, 0, "a" * 64, Output(value=1))], [])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("not a url with hunter2", "is not a database URL"),
        ("postgresql://me:hunter2@host:54x/db", "is not a database URL"),
        ("mysql://me:hunter2@host/db", "cannot be a mysql database"),
        ("sqlite://", "has to be a file"),
        ("sqlite:///:memory:", "has to be a file"),
    ],
)
def test_a_url_that_cannot_be_a_store_is_refused_with_advice_and_without_its_password(url, message):
    with pytest.raises(UserError, match=message) as caught:
        Store.open(url)

    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_what_users_evaluate_is_in_no_error(store, make_run):
    make_run(cases=1)

    with pytest.raises(InfrastructureError) as caught:
        store.results.write("run-1", [NewOutput(7, 0, "a" * 64, Output(value="a customer's letter"))], [])

    assert "letter" not in f"{caught.value} {caught.value.__cause__}"
