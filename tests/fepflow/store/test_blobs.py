"""Large outputs in blobs: in a folder and in a bucket, on both databases."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from fepflow import extras
from fepflow.errors import InfrastructureError, MissingExtraError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.settings import settings
from fepflow.store.blobs import Blobs
from fepflow.store.database import Database
from fepflow.store.maintenance import StoreReport, check_integrity
from fepflow.store.records import OUTPUT, NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store

SECRET = "secret-of-the-bucket"
ODD = "\0\ud800é" * 300 + "x" * 300_000
OUTPUTS = [
    Output(value=ODD, metadata={"latency_ms": 3.5}),
    Output(value={"rows": [float("nan"), "y" * 300_000]}),
    Output(value="short", metadata={"a": 1, "trace": {"spans": ["z" * 300_000]}, "tokens": 7}),
    Output(value={"steps": ["w" * 300_000]}, metadata={"error": {"type": "timeout", "message": "no", "partial": True}}),
    Output(value="small"),
]
N_LARGE = 4
NOW = utc_now()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of a server that speaks S3, with a bucket."""
    import boto3
    from moto.server import ThreadedMotoServer  # takes long to load

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client("s3", "us-east-1", endpoint_url=address, aws_access_key_id="k", aws_secret_access_key="s")
    client.create_bucket(Bucket="blobs")
    yield address
    server.stop()


@pytest.fixture
def in_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that FEPFLOW_BLOBS names; it is not there yet."""
    monkeypatch.setenv("FEPFLOW_BLOBS", (home / "blobs" / "of fepflow").as_uri())
    settings.cache_clear()
    return home / "blobs" / "of fepflow"


@pytest.fixture
def in_bucket(home: Path, monkeypatch: pytest.MonkeyPatch, bucket: str) -> str:
    """A prefix of a bucket that FEPFLOW_BLOBS names."""
    env = {"AWS_ENDPOINT_URL": bucket, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in {**env, "AWS_DEFAULT_REGION": "us-east-1", "FEPFLOW_BLOBS": f"s3://blobs/{home.name}"}.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    return f"s3://blobs/{home.name}"


@pytest.fixture(params=[("in_folder", "sqlite"), ("in_folder", "postgresql"), ("in_bucket", "sqlite")], ids="-".join)
def filled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that writes to blobs, with the same outputs in two runs, of which one is from before FEPFLOW_BLOBS."""
    place, database = request.param
    monkeypatch.setenv("FEPFLOW_STORE_URL", request.getfixturevalue(f"{database}_url"))
    request.getfixturevalue(place)
    with Store.open(settings().store_address) as store:
        add_run(Store(store._database), "plain")
        add_run(store, "large")
        yield store


def checked() -> StoreReport:
    return check_integrity(settings().store_address)


def add_run(store: Store, run_id: str, outputs: list[Output] = OUTPUTS, **fields: Any) -> None:
    """Store a run that is over, with checks that passed."""
    result = CheckResult(check_type="c", status="completed", results={"passed": True}, evaluated_at=NOW)
    store.runs.add_completed(
        RunRecord(id=run_id, name="refunds", suite={}, repeats=1, **fields),
        [TestCase(id=f"case-{n}", input=n) for n in range(len(outputs))],
        [NewOutput(n, 0, f"{n:064}", output) for n, output in enumerate(outputs)],
        [NewCheckResult(n, 0, "c", "b" * 64, result, True) for n in range(len(outputs))],
        outcome="pass",
        metrics=[],
        verdict={},
    )


def blobs_of(store: Store) -> Blobs:
    assert store._blobs is not None
    return store._blobs


def stored(store: Store, run_id: str) -> dict[int, tuple[Any, Any, str | None]]:
    """Value, metadata and digest of each row, as the database has them."""
    columns = OUTPUT.c.case_index, OUTPUT.c.value, OUTPUT.c.metadata, OUTPUT.c.blob
    with store._database.reading() as connection:
        rows = connection.execute(select(*columns).where(OUTPUT.c.run_id == run_id))
        return {index: (value, metadata, blob) for index, value, metadata, blob in rows}


def test_a_large_output_is_read_as_if_all_of_it_stood_in_its_row(filled: Store) -> None:
    results = filled.results
    assert stored(filled, "plain")[0][2] is None
    assert repr(list(results.by_case("large"))) == repr(list(results.by_case("plain")))
    for read in (results.outputs, lambda run_id: results.outputs_at(run_id, range(5))):
        assert repr(read("large")) == repr(read("plain"))
    of_grid = [repr(results.grid_rows(run_id, range(5), whole=True)) for run_id in ("large", "plain")]
    assert of_grid[0] == of_grid[1]
    reusable = results.reusable([f"{n:064}" for n in range(5)], "plain")
    assert {hashed: (run_id, repr(output)) for hashed, (run_id, output) in reusable.items()} == {
        f"{n:064}": ("large", repr(OUTPUTS[n])) for n in (0, 1, 2, 4)
    }
    assert results.has_blobs("large")
    assert not results.has_blobs("plain")
    rows = stored(filled, "large")
    assert [len(str(rows[n][0])) for n in range(5)] == [1_000, 1_000, 5, 1_000, 5]
    assert rows[2][1] == {"a": 1, "trace": None, "tokens": 7}
    assert rows[3][1] == OUTPUTS[3].metadata
    assert len(blobs_of(filled).names()) == N_LARGE
    report = checked()
    assert (report.problems, len(report.notes)) == ([], 1)
    assert report.notes[0].startswith(f"{N_LARGE} large outputs are at {blobs_of(filled).address} (1.2 MB)")


def test_lists_and_figures_are_read_while_the_blobs_are_away(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise AssertionError("a blob was read")

    monkeypatch.setattr(Blobs, "read", away)
    rows = filled.results.grid_rows("large", range(5))
    assert [row.outputs[0].failed for row in rows] == [False, False, False, True, False]
    assert str(rows[1].outputs[0].output.value).startswith('{"rows": [NaN, "yyy')
    assert len(list(filled.results.by_case("large", whole=False))) == 5
    assert filled.results.complete_outputs("large", 1)[2].metadata == {"a": 1, "trace": None, "tokens": 7}
    assert filled.results.progress("large").failed_outputs == 1
    assert filled.results.find_cases("large", "\0\ud800é") == [0]


def test_a_lost_blob_is_an_error_of_its_case_and_no_other_one(filled: Store) -> None:
    digests = {index: row[2] for index, row in stored(filled, "large").items()}
    place, before = blobs_of(filled)._place, filled.results.check_totals("large")
    place.delete(f"{digests[0][:2]}/{digests[0]}")
    place.write(f"{digests[2][:2]}/{digests[2]}", b'{"metadata":{"trace":null}}')
    outputs = filled.results.outputs("large")
    assert [outputs[n, 0].failed for n in range(5)] == [True, False, True, True, False]
    missing, damaged = (outputs[n, 0].output for n in (0, 2))
    assert missing.value is None
    assert missing.metadata is not None
    assert missing.metadata["latency_ms"] == 3.5
    assert missing.failure is not None
    assert (
        f"{blobs_of(filled).address}/{digests[0][:2]}/{digests[0]} is not there: restore that"
        in missing.failure["message"]
    )
    assert damaged.failure is not None
    assert "is damaged" in damaged.failure["message"]
    assert [result.output == outputs[n, 0].output for n, result in enumerate(filled.results.by_case("large"))][:1]
    assert filled.results.reusable([f"{0:064}", f"{2:064}"], "plain") == {}  # the agent is asked again
    assert filled.results.check_totals("large") == before
    problems = checked().problems
    assert [problem.split(": ")[0] for problem in sorted(problems)] == ["output large/0/0", "output large/2/0"]
    add_run(filled, "again")  # which heals what it finds damaged or missing, as the content is the same
    assert [output.failed for output in filled.results.outputs("large").values()].count(True) == 1
    assert checked().problems == []


def test_a_blob_goes_with_the_last_output_that_refers_to_it(filled: Store) -> None:
    add_run(filled, "same")
    add_run(filled, "other", [Output(value="v" * 300_000)])
    assert len(blobs_of(filled).names()) == N_LARGE + 1
    filled.retention.delete_run("large")
    assert filled.retention.delete_unused_blobs() == 0
    assert filled.retention.erase_case("case-0") == 3  # of "same" and "other"; "plain" has none
    assert len(blobs_of(filled).names()) == N_LARGE - 1
    assert not filled.results.outputs("same")[1, 0].failed
    filled.retention.delete_run("same")
    with pytest.raises(InfrastructureError, match="FEPFLOW_BLOBS is not set here"):
        Store(filled._database).retention.delete_unused_blobs()
    assert "belong to no run any more" in " ".join(checked().notes)
    assert filled.retention.delete_unused_blobs() == N_LARGE - 1
    assert blobs_of(filled).names() == []


def test_a_writer_does_not_lose_its_blob_to_somebody_who_deletes(
    in_folder: Path, store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, tries = Blobs.write, []

    def interrupted(self: Blobs, *arguments: Any) -> None:
        write(self, *arguments)
        tries.append(arguments)
        if len(tries) <= 2:  # nothing refers to it yet
            with Store.open(url) as other:
                assert other.retention.delete_unused_blobs() == 1

    monkeypatch.setattr(Blobs, "write", interrupted)
    with Store.open(url) as writer:
        add_run(writer, "run-1", OUTPUTS[:1])
        assert len(tries) == 3
        assert writer.results.outputs("run-1")[0, 0].output == OUTPUTS[0]
        monkeypatch.setattr(Blobs, "write", write)

        failures: list[Exception] = []

        def write_and_delete(number: int) -> None:
            try:
                with Store.open(url, 30) as mine:
                    for attempt in range(4):
                        add_run(mine, f"run-{number}-{attempt}", [Output(value=f"{attempt % 2}" * 300_000)])
                        assert not mine.results.outputs(f"run-{number}-{attempt}")[0, 0].failed
                        if attempt < 3:
                            mine.retention.delete_run(f"run-{number}-{attempt}")
                        mine.retention.delete_unused_blobs()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=write_and_delete, args=(number,)) for number in range(2, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert not any(each.failed for n in range(2, 6) for each in writer.results.outputs(f"run-{n}-3").values())
    report = check_integrity(url)
    assert (report.problems, len(report.notes)) == ([], 1)


def test_without_its_blob_no_row_is_stored_and_a_place_that_comes_back_is_waited_for(
    in_folder: Path, store: Store, url: str, make_run: Callable[..., str]
) -> None:
    make_run(cases=1)
    in_folder.parent.mkdir()
    in_folder.write_text("a file where the folder should be")
    new = [NewOutput(0, 0, "a" * 64, OUTPUTS[0])]
    with Store.open(url) as impatient:
        with pytest.raises(InfrastructureError, match=r"cannot be used .*: look at its disk"):
            impatient.results.write("run-1", new, [])
        assert impatient.results.outputs("run-1") == {}
    with Store.open(url, 20) as patient:
        timer = threading.Timer(0.3, in_folder.unlink)
        timer.start()
        patient.results.write("run-1", new, [])
        timer.join()
        assert patient.results.outputs("run-1")[0, 0].output == OUTPUTS[0]
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in in_folder.rglob("*")}
    assert modes == {True: 0o700, False: 0o600}
    in_folder.rename(in_folder.with_name("unmounted"))
    with Store.open(url) as reader:
        with pytest.raises(InfrastructureError, match="the folder is not there"):
            list(reader.results.by_case("run-1"))
        reader.runs.request_cancel("run-1")
        with pytest.raises(InfrastructureError, match="the folder is not there"):
            reader.retention.erase_case("case-0")  # else it would be said to be erased, and be there again once mounted
        in_folder.with_name("unmounted").rename(in_folder)
        assert reader.retention.delete_unused_blobs() == 1
    assert [path for path in in_folder.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("in_bucket")
def test_a_bucket_that_is_away_or_missing_shows_no_secret(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for name, value in (("FEPFLOW_BLOBS", "s3://nowhere"), ("AWS_ENDPOINT_URL", f"http://u:{SECRET}@127.0.0.1:1")):
        with monkeypatch.context() as patched, Store.open(sqlite_url) as store:
            patched.setenv(name, value)
            settings.cache_clear()
            with Store(store._database, Blobs.of_settings()) as away, pytest.raises(InfrastructureError) as error:
                add_run(away, "run-1")
            said.append(str(error.value))
            for work in (blobs_of(away).read, blobs_of(away).delete) if name == "FEPFLOW_BLOBS" else ():
                with pytest.raises(InfrastructureError, match=r"the bucket is not there\): check that the bucket of"):
                    work(["a" * 64])  # else all would be lost, or said to be deleted
            with store._database.reading() as connection:
                assert connection.scalar(select(func.count()).select_from(OUTPUT)) == 0
    assert "bucket" in said[0]
    assert "s3://blobs/" in said[1]
    assert SECRET not in " ".join(said)
    monkeypatch.setattr(extras, "_is_there", lambda module: module != "s3fs")
    with pytest.raises(MissingExtraError, match=r'FEPFLOW_BLOBS=s3:// needs s3fs.*pip install "fepflow\[remote\]"'):
        Store.open(sqlite_url)


@pytest.mark.usefixtures("in_bucket")
def test_others_write_while_a_bucket_says_nothing(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(sqlite_url) as store:
        add_run(store, "run-1")
        store.retention.delete_run("run-1")
    monkeypatch.setattr("fepflow.store.blobs.SILENCE_SECONDS", 1)
    written: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")

        def write_when_it_is_asked() -> None:
            with silent.accept()[0], Store(Database(sqlite_url)) as other:
                add_run(other, "run-2")
                written.append("run-2")

        writer = threading.Thread(target=write_when_it_is_asked)
        writer.start()
        with Store.open(sqlite_url) as store, pytest.raises(InfrastructureError, match=r"s3://blobs/.* cannot be used"):
            store.retention.delete_unused_blobs()
        writer.join()
    assert written == ["run-2"]


def test_a_store_without_the_setting_says_what_it_needs_to_be_read(
    in_folder: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(sqlite_url) as with_blobs:
        add_run(with_blobs, "large")
    monkeypatch.delenv("FEPFLOW_BLOBS")
    settings.cache_clear()
    with Store.open(sqlite_url) as store:
        assert [row.case_index for row in store.results.grid_rows("large", range(5))] == [0, 1, 2, 3, 4]
        with pytest.raises(InfrastructureError, match=r"4 large outputs of .* FEPFLOW_BLOBS is not set here: set it"):
            store.results.outputs("large")
    assert "4 large outputs were not looked at" in " ".join(check_integrity(sqlite_url).problems)
