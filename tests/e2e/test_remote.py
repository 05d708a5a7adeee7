"""Test cases from a bucket, and a secret from a block of Prefect: a run from the command line, on a worker, resumed."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from .conftest import Stack, Workplace
from .endpoint import Endpoint

TOKEN = "token-in-a-block-of-prefect"
FLOW = """
import asyncio, sys
from fepflow.flows.evaluate import evaluate
asyncio.run(evaluate(sys.argv[1], return_state=True))
"""


@pytest.fixture
def bucket() -> Iterator[tuple[Any, dict[str, str], bytes]]:
    """A server that speaks S3 with a Parquet file in a bucket, and the environment that leads to it."""
    import boto3
    from moto.server import ThreadedMotoServer  # takes long to load

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    file = io.BytesIO()
    parquet.write_table(pa.table({"id": ["a", "b"], "input": ["one", "two"], "expected": ["one", "two"]}), file)
    client = boto3.client("s3", "us-east-1", endpoint_url=address, aws_access_key_id="k", aws_secret_access_key="s")
    client.create_bucket(Bucket="evals")
    client.put_object(Bucket="evals", Key="v1/cases.parquet", Body=file.getvalue())
    env = {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "secret-of-the-bucket"}
    yield server, {**env, "AWS_DEFAULT_REGION": "us-east-1"}, file.getvalue()
    server.stop()


def create_blocks(stack: Stack, url: str) -> None:
    """A Secret block and a variable, as Prefect's UI makes them."""
    kind: Any = stack.api.get("/block_types/slug/secret").raise_for_status().json()
    filters = {"block_schemas": {"block_type_id": {"any_": [kind["id"]]}}}
    schema = stack.api.post("/block_schemas/filter", json=filters).raise_for_status().json()[0]
    block = {"name": "agent-token", "data": {"value": TOKEN}, "block_type_id": kind["id"]}
    stack.api.post("/block_documents/", json={**block, "block_schema_id": schema["id"]}).raise_for_status()
    stack.api.post("/variables/", json={"name": "agent_url", "value": url}).raise_for_status()


def test_a_run_takes_cases_from_s3_and_a_secret_from_a_block(
    workplace: Workplace, endpoint: Endpoint, bucket: tuple[Any, dict[str, str], bytes]
) -> None:
    server, env, content = bucket
    create_blocks(workplace.stack, endpoint.url)
    http = {
        "url": "${prefect:variable/agent_url}",
        "headers": {"Authorization": "Bearer ${prefect:secret/agent-token}"},
    }
    workplace.write_suite([], http=http, test_cases="s3://evals/v1/cases.parquet")
    (workplace.folder / "cases.jsonl").unlink()

    valid = workplace.fepflow("validate", workplace.suite, AGENT_URL="", **env)
    assert valid.returncode == 0, valid.stderr
    assert "is valid: 2 test cases, 1 shared check.\nTest cases from s3://evals/v1/cases.parquet (" in valid.stdout
    assert valid.stderr == ""
    reports = workplace.folder / "report.json", workplace.folder / "report.html"
    done = workplace.run("-o", reports[0], "-o", reports[1], AGENT_URL="", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    digest = hashlib.sha256(content).hexdigest()
    assert f"test cases from s3://evals/v1/cases.parquet ({len(content):,} bytes, sha256 {digest[:12]})" in done.stdout
    assert {case_id: result.output.value for case_id, result in workplace.results.items()} == {"a": "one", "b": "two"}
    assert {asked.headers["authorization"] for asked in endpoint.asked} == {f"Bearer {TOKEN}"}
    report = json.loads(reports[0].read_text())
    origin = {"url": "s3://evals/v1/cases.parquet", "sha256": digest, "bytes": len(content)}
    assert report["metadata"]["test_cases"] == origin
    assert digest[:12] in reports[1].read_text()

    # As a worker does it: it has the suite, and neither the command line nor a variable of the environment.
    with workplace.running(workplace.suite, code=FLOW, **workplace.stack.prefect, **env) as process:
        _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    assert workplace.record.outcome is not None, workplace.record.error
    assert workplace.record.origin == origin

    # What the store has is not fetched again.
    server.stop()
    resumed = workplace.fepflow("run", "--resume", "latest", AGENT_URL="", **env)
    assert resumed.returncode == done.returncode, resumed.stdout + resumed.stderr
    new = workplace.run(AGENT_URL="", **env)
    assert new.returncode == 3
    assert "s3://evals/v1/cases.parquet cannot be fetched" in new.stderr
    for text in (done.stdout, done.stderr, errors, resumed.stdout, new.stderr, json.dumps(workplace.record.suite)):
        assert TOKEN not in text
        assert "secret-of-the-bucket" not in text
    assert TOKEN.encode() not in b"".join(
        path.read_bytes() for path in workplace.folder.glob("[rs]*") if path.is_file()
    )
