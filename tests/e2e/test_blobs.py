"""Outputs of a megabyte in a bucket, from a person's side: run, show, export, page, rescore, compare, prune."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from .conftest import Workplace

pytestmark = pytest.mark.e2e

SUITE = """
name: large
target: {python: "agent.py:answer", retries: 0, attempts: 1}
test_cases:
  - {id: a, input: a, expected: the end of a}
  - {id: b, input: b, expected: the end of b}
  - {id: c, input: small, expected: the end of small}
checks: [{type: contains, arguments: {text: $.output.value, phrases: $.test_case.expected}}]
"""
AGENT = """
import pathlib

def answer(question):
    with pathlib.Path(__file__).with_name("asked.txt").open("a") as file:
        file.write(question + "\\n")
    return (question * 1_000_000 if question != "small" else "") + "the end of " + question
"""
SECRET = "secret-of-the-bucket"


@pytest.fixture
def bucket() -> Iterator[tuple[Any, dict[str, str]]]:
    """A client of a server that speaks S3, with a bucket, and the environment that leads to it."""
    import boto3
    from moto.server import ThreadedMotoServer  # takes long to load

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client("s3", "us-east-1", endpoint_url=address, aws_access_key_id="k", aws_secret_access_key="s")
    client.create_bucket(Bucket="evals")
    env = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET}
    yield client, {**env, "AWS_DEFAULT_REGION": "us-east-1", "FEPFLOW_BLOBS": "s3://evals/outputs"}
    server.stop()


def test_outputs_of_a_megabyte_are_in_a_bucket_until_their_last_run_is_pruned(
    workplace: Workplace, bucket: tuple[Any, dict[str, str]]
) -> None:
    client, env = bucket

    def blobs() -> list[str]:
        return [each["Key"] for each in client.list_objects_v2(Bucket="evals").get("Contents", ())]

    def fepflow(*arguments: str | Path, code: int = 0, **more: str) -> str:
        done = workplace.fepflow(*arguments, **{**env, **more})
        assert done.returncode == code, done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout + done.stderr

    workplace.suite.write_text(SUITE, encoding="utf-8")
    (workplace.folder / "agent.py").write_text(AGENT, encoding="utf-8")
    reports = [workplace.folder / f"report.{kind}" for kind in ("json", "html")]
    assert "PASS" in fepflow("run", workplace.suite, "-o", reports[0], "-o", reports[1])
    run = workplace.record
    assert len(blobs()) == 2
    digests = [key.rpartition("/")[2] for key in blobs()]
    with closing(sqlite3.connect(workplace.folder / "store.db")) as rows:
        stored = rows.execute("SELECT blob, length(value) FROM output ORDER BY case_index").fetchall()
    assert sorted(digest for digest, _ in stored[:2]) == sorted(digests)
    assert (stored[2], stored[0][1]) == ((None, 18), 1_002)
    results = json.loads(reports[0].read_text(encoding="utf-8"))["results"]
    assert [len(json.dumps(result["execution_context"]["output"]["value"])) for result in results][:2] == [
        1_000_014
    ] * 2
    assert "aaaaaaa" in reports[1].read_text(encoding="utf-8")
    assert "the end of a" in fepflow("show", run.id, "--json")
    assert "the end of b" in fepflow("export", run.id, "--to", "csv")
    assert "2 large outputs are at s3://evals/outputs (2.0 MB)" in fepflow("store", "check")

    asked = (workplace.folder / "asked.txt").read_text(encoding="utf-8")
    assert "PASS" in fepflow("rescore", run.id)
    again = workplace.record
    assert "PASS" in fepflow("run", workplace.suite, "--reuse-outputs")
    assert (workplace.folder / "asked.txt").read_text(encoding="utf-8") == asked
    assert len(blobs()) == 2, "three runs share them"
    fepflow("compare", run.id, again.id)

    client.delete_object(Bucket="evals", Key=blobs()[0])
    shown = fepflow("show", again.id, "--json")
    assert f"s3://evals/outputs/{digests[0][:2]}/{digests[0]} is not there: restore that" in shown
    assert "error: output " in fepflow("store", "check", code=3)
    assert "INCONCLUSIVE" in fepflow("rescore", run.id, code=4)
    assert "PASS" in fepflow("run", workplace.suite, "--reuse-outputs"), "the agent is asked for what is lost"
    assert len((workplace.folder / "asked.txt").read_text(encoding="utf-8")) == len(asked) + 2
    assert len(blobs()) == 2

    newest = workplace.record
    assert "Deleted 4 runs" in fepflow("store", "prune", "--keep-last", "1", "--suite", "large")
    assert len(blobs()) == 2
    assert "the end of a" in fepflow("show", newest.id, "--json")
    fepflow("delete", newest.id, "--yes")
    assert blobs() == []


def test_a_run_whose_bucket_is_away_loses_nothing_and_is_resumed(
    workplace: Workplace, bucket: tuple[Any, dict[str, str]]
) -> None:
    client, env = bucket
    workplace.suite.write_text(SUITE, encoding="utf-8")
    (workplace.folder / "agent.py").write_text(AGENT, encoding="utf-8")
    env = {**env, "FEPFLOW_BLOBS": "s3://later"}
    done = workplace.run(**env)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "bucket of FEPFLOW_BLOBS" in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert workplace.record.status == "failed"
    client.create_bucket(Bucket="later")
    done = workplace.fepflow("run", "--resume", workplace.record.id, **env)
    assert done.returncode == 0, done.stdout + done.stderr
