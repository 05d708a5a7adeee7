"""Test cases from addresses: the web, buckets and the hub, over real sockets; what is hostile there is said."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest

from fepflow.datasets import remote
from fepflow.datasets.remote import Download, fetch, fetch_cases
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InfrastructureError, InputError
from fepflow.settings import settings
from tests.e2e.conftest import wait_for

from .sources import COMMIT, Source, redirect, status, web

CASES = b'{"id": "a", "input": "one"}\n{"id": "b", "input": "two"}\n'
DIGEST = hashlib.sha256(CASES).hexdigest()

SUITE = """
name: remote
target: {{http: {{url: "http://127.0.0.1:1/"}}}}
test_cases: {source}
checks: [{{type: exact_match, arguments: {{actual: $.output.value, expected: $.test_case.input}}}}]
"""


@pytest.fixture
def source(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    monkeypatch.setattr(remote, "PAUSES", ())
    with web(home) as running:
        monkeypatch.setenv("SSL_CERT_FILE", str(running.authority))
        yield running


def validated(test_cases: str) -> SuiteValidation:
    Path("suite.yaml").write_text(SUITE.format(source=test_cases), encoding="utf-8")
    return validate_suite(Path("suite.yaml"))


def told(test_cases: str) -> str:
    return "\n".join(map(str, validated(test_cases).errors))


def test_test_cases_are_read_from_https_and_their_digest_is_known(source: Source) -> None:
    source.answers["/cases.jsonl"] = CASES
    validation = validated(f"{source.address}/cases.jsonl")
    assert validation.require()
    assert [case.id for case in validation.cases] == ["a", "b"]
    assert validation.origin is not None
    assert validation.origin.data() == {"url": f"{source.address}/cases.jsonl", "sha256": DIGEST, "bytes": len(CASES)}


def test_a_file_that_is_unchanged_is_not_fetched_again_and_a_damaged_one_is(source: Source) -> None:
    source.answers["/cases.jsonl"] = CASES
    address = f"{source.address}/cases.jsonl"
    first = fetch(address)
    assert first.path.read_bytes() == CASES
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert fetch(address) == first
    first.path.write_bytes(CASES.replace(b"one", b"two"))
    assert fetch(address).path.read_bytes() == CASES
    source.answers["/cases.jsonl"] = CASES * 2
    assert fetch(address).sha256 != DIGEST
    assert not first.path.exists()
    conditions = [headers.get("If-None-Match") is not None for _, headers in source.requests]
    assert conditions == [False, True, False, True]


def test_a_source_that_cannot_be_reached_is_no_error_of_the_suite_whatever_is_kept(source: Source) -> None:
    source.answers["/cases.jsonl"] = CASES
    address = f"{source.address}/cases.jsonl"
    assert validated(address).require()
    source.answers["/cases.jsonl"] = status(503)
    validation = validated(address)
    assert len(validation.cases) == 0
    assert "nothing was evaluated: try again later" in str(validation.errors[0])
    assert validation.errors[0].line == 4
    with pytest.raises(InfrastructureError, match="the server answers 503"):
        validation.require()
    with pytest.raises(InfrastructureError, match="cannot be fetched"):
        fetch("https://localhost:1/cases.jsonl")


def test_a_source_that_fails_once_is_asked_again(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSES", (0.01,))

    def flapping(handler: BaseHTTPRequestHandler) -> None:
        source.answers["/cases.jsonl"] = CASES
        status(503)(handler)

    source.answers["/cases.jsonl"] = flapping
    assert fetch(f"{source.address}/cases.jsonl").sha256 == DIGEST


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    while True:
        handler.wfile.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


def truncated(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CASES)))
    handler.end_headers()
    handler.wfile.write(CASES[:20])
    handler.close_connection = True


def dripping(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.02)


def without_length(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(CASES)
    handler.close_connection = True


def silent(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(1)


def brotli(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Encoding", "br")
    handler.send_header("Content-Length", "3")
    handler.end_headers()
    handler.wfile.write(b"xxx")


HOSTILE: list[tuple[str, Any, type[Exception], str]] = [
    ("endless", endless, InputError, "is larger than 1,000,000 bytes"),
    ("cut off", truncated, InfrastructureError, "incomplete|without sending complete"),
    ("without length", without_length, InputError, "is sent without its length"),
    ("dripping", dripping, InfrastructureError, "it took longer than 1.5 s"),
    ("silent", silent, InfrastructureError, "cannot be fetched"),
    ("other compression", brotli, InputError, r"is sent compressed \(br\)"),
    ("a page", b"\n <!DOCTYPE html><html>sign in</html>", InputError, "is a page of HTML, not data"),
    ("forbidden", status(403), InputError, "may not be read: the server answers 403"),
    ("not there", status(404), InputError, "is not there: the server answers 404"),
    ("no content", status(204), InputError, "is not a file: the server answers 204"),
    ("too many requests", status(429), InfrastructureError, "the server answers 429"),
    ("broken", status(500), InfrastructureError, "the server answers 500"),
    ("not modified without a question", status(304), InputError, "is not a file: the server answers 304"),
    ("redirects in a circle", redirect("/hostile.jsonl"), InputError, "redirects more than 5 times"),
    ("redirects to plain http", redirect("http://localhost:1/x"), InputError, "to an address that is not https"),
    ("redirects to a file", redirect("file:///etc/passwd"), InputError, "to an address that is not https"),
    ("redirects to nothing", redirect("https://[:/"), InfrastructureError, "cannot be fetched"),
]


@pytest.mark.parametrize(("answer", "error", "words"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_source_is_a_truthful_error(
    source: Source, monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception], words: str
) -> None:
    monkeypatch.setattr(remote, "MAX_DOWNLOAD_BYTES", 1_000_000)
    monkeypatch.setattr(remote, "SECONDS", 1.5)
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 0.3)
    source.answers["/hostile.jsonl"] = answer
    with pytest.raises(error, match=words):
        fetch(f"{source.address}/hostile.jsonl")
    folder = settings().home / "downloads"
    wait_for(lambda: not any(path.is_file() for path in folder.glob("*")), "nothing is kept", 30)


def test_a_bomb_a_wrong_kind_of_data_and_an_empty_file_are_errors_and_never_an_empty_suite(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fepflow.datasets import records

    monkeypatch.setattr(records, "MAX_LINE_BYTES", 1_000_000)
    source.answers["/bomb.jsonl.gz"] = gzip.compress(bytes(50_000_000))
    source.answers["/cut.jsonl.gz"] = gzip.compress(CASES)[:-4]
    source.answers["/one.jsonl"] = b'{"cases": 1'
    source.answers["/empty.jsonl"] = b""
    source.answers["/packed.jsonl"] = gzip.compress(CASES)
    assert f"{source.address}/bomb.jsonl.gz:1: this line is larger" in told(f"{source.address}/bomb.jsonl.gz")
    assert "is not a complete gzip file" in told(f"{source.address}/cut.jsonl.gz")
    assert "is not valid JSON" in told(f"{source.address}/one.jsonl")
    assert "holds no test cases" in told(f"{source.address}/empty.jsonl")
    assert "is gzip data" in told(f"{source.address}/packed.jsonl")
    assert "the ending does not say" in told(f"{source.address}/data")
    assert [path for path, _ in source.requests if path == "/data"] == []


def test_credentials_go_to_the_host_that_they_are_for_and_are_never_shown(
    source: Source, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "elsewhere").mkdir()
    with web(home / "elsewhere") as elsewhere:
        monkeypatch.setenv("SSL_CERT_FILE", str(home / "both.pem"))
        (home / "both.pem").write_bytes(source.authority.read_bytes() + elsewhere.authority.read_bytes())
        elsewhere.answers["/there.jsonl"] = b"no json"
        source.answers["/cases.jsonl"] = redirect(f"{elsewhere.address}/there.jsonl")
        monkeypatch.setenv("DATA_PASSWORD", "pass-word-of-the-data")
        monkeypatch.setenv("DATA_SIGNED", "signature-of-the-data")
        host = source.address.removeprefix("https://")
        address = f"https://reader:${{DATA_PASSWORD}}@{host}/cases.jsonl?sig=${{DATA_SIGNED}}"
        errors = told(address)
    assert f"https://{host}/cases.jsonl:1: is not valid JSON" in errors
    assert "-of-the-data" not in errors
    assert "sig=signature-of-the-data" in source.requests[0][0]
    assert "Authorization" in source.requests[0][1]
    assert "Authorization" not in elsewhere.requests[0][1]
    kept = [path for path in (settings().home / "downloads").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"-of-the-data" in path.read_bytes() for path in kept)


@pytest.mark.parametrize(
    ("source_in_suite", "words"),
    [
        ("http://example.com/cases.jsonl", "http:// is read by everybody on the way, and may be changed there"),
        ("https:///cases.jsonl", "the address has no host"),
        ("ftp://example.com/cases.jsonl", "ftp:// is not known"),
        ("gcs://bucket/cases.jsonl", "did you mean gs://?"),
        ("huggingface://datasets/ORG/NAME", "did you mean hf://?"),
        ("file://cases.jsonl", "is a file of this machine (write its path alone"),
        (
            "{path: hf://datasets/ORG/NAME, subset: main}",
            "subset is not known here (a folder or configuration stands in path",
        ),
        ("{url: https://example.com/cases.jsonl}", "url is not known here (it is path)"),
        ("s3://bucket", "the address names no file (it reads like s3://BUCKET/FOLDER/cases.jsonl)"),
        ("s3://KEY:${SECRET_KEY:-}@bucket/cases.jsonl", "an address at s3:// holds no credentials"),
        ("https://reader:pass-word@example.com/cases.jsonl", "a secret must not stand in the address"),
        ("https://example.com/cases.jsonl?X-Amz-Signature=abcdef", "a secret must not stand in the address"),
        ("S3://bucket/cases.jsonl", "the scheme is written in small letters (write s3://)"),
        ("https://huggingface.co/datasets/ORG/NAME", "a page about a dataset (write hf://datasets/ORG/NAME)"),
        ("hf://ORG/NAME", "does not name a dataset of the hub (it reads like hf://datasets/ORG/NAME"),
        ("{path: hf://datasets/ORG/NAME@v1, revision: v2}", "test_cases.revision: stands in the address already"),
        ("{path: cases.jsonl, split: test}", "test_cases.split: is of hf://datasets/… only"),
        ("{path: https://example.com/cases.jsonl, revision: v2}", "test_cases.revision: is of hf://datasets/… only"),
    ],
)
def test_an_address_that_cannot_be_meant_is_an_error_with_its_line(
    home: Path, source_in_suite: str, words: str
) -> None:
    quoted = source_in_suite if source_in_suite.startswith("{") else f'"{source_in_suite}"'
    errors = told(quoted)
    assert "suite.yaml:4: test_cases" in errors
    assert words in errors


def test_recorded_outputs_by_order_and_at_addresses_are_refused(source: Source) -> None:
    source.answers["/cases.jsonl"] = CASES
    Path("outputs.jsonl").write_text('{"value": 1}\n{"value": 2}\n', encoding="utf-8")
    text = SUITE.format(source=f"{source.address}/cases.jsonl")
    for path, words in (
        ("outputs.jsonl", "matched with test cases by order, which a run does not fetch again"),
        ("https://localhost/outputs.jsonl", "is an address, but a file of this machine is read here (download it)"),
    ):
        recorded = text.replace('{http: {url: "http://127.0.0.1:1/"}}', f'{{recorded: {{path: "{path}"}}}}')
        Path("suite.yaml").write_text(recorded, encoding="utf-8")
        errors = "\n".join(map(str, validate_suite(Path("suite.yaml")).errors))
        assert words in errors


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of moto's server, and how to get to it."""
    import boto3
    from moto.server import ThreadedMotoServer  # takes long to load

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client("s3", "us-east-1", endpoint_url=address, aws_access_key_id="k", aws_secret_access_key="s")
    client.create_bucket(Bucket="evals")
    client.put_object(Bucket="evals", Key="v1/cases.jsonl", Body=CASES)
    yield address
    server.stop()


@pytest.fixture
def aws(bucket: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSES", ())
    for name, value in {
        "AWS_ENDPOINT_URL": bucket,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-bucket",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(home / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("aws")
def test_test_cases_are_read_from_s3_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    validation = validated("s3://evals/v1/cases.jsonl")
    assert validation.require()
    assert [case.id for case in validation.cases] == ["a", "b"]
    assert validation.origin is not None
    assert validation.origin.data()["sha256"] == DIGEST
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "open", None)  # it is not read again
    assert validated("s3://evals/v1/cases.jsonl").require()
    monkeypatch.undo()


@pytest.mark.usefixtures("aws")
def test_what_is_wrong_with_a_bucket_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "s3://evals/v2/cases.jsonl: is not there (check bucket and path)" in told("s3://evals/v2/cases.jsonl")
    assert "is a folder (name a file in it)" in told("{path: s3://evals/v1, format: jsonl}")
    monkeypatch.setattr(remote, "MAX_DOWNLOAD_BYTES", 10)
    assert "is larger than 10 bytes" in told("s3://evals/v1/cases.jsonl")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(remote, "SECONDS", 1.0)
    validation = validated("s3://evals/v1/cases.jsonl")
    with pytest.raises(InfrastructureError, match=r"s3://evals/v1/cases\.jsonl cannot be fetched"):
        validation.require()


@pytest.mark.usefixtures("aws")
def test_a_bucket_that_falls_silent_is_not_taken_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    def silent(*arguments: Any) -> bytes:
        raise TimeoutError("read timed out")  # an OSError, as those of a disk are

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", silent)
    with pytest.raises(InfrastructureError, match=r"^s3://evals/v1/cases\.jsonl cannot be fetched: read timed out"):
        fetch("s3://evals/v1/cases.jsonl")


def test_test_cases_are_read_from_gs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the two requests of gcsfs: about an object, and its content."""
    with web(home, tls=False) as emulator:
        monkeypatch.setattr(remote, "PAUSES", ())
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", emulator.address)
        about = {"kind": "storage#object", "name": "v1/cases.jsonl", "bucket": "evals", "size": str(len(CASES))}
        about |= {"etag": "CAE=", "generation": "17", "mediaLink": f"{emulator.address}/media"}

        def object_(handler: BaseHTTPRequestHandler) -> None:
            is_content = "alt=media" in handler.path or "/download/" in handler.path
            body = CASES if is_content else json.dumps(about).encode()
            handler.send_response(200)
            handler.send_header("Content-Type", "application/octet-stream" if is_content else "application/json")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        class AnyPath(dict[str, Any]):
            def get(self, path: str, default: Any = None) -> Any:
                return object_ if "v1/cases.jsonl" in unquote(path) else default

        emulator.answers = AnyPath()
        validation = validated("gs://evals/v1/cases.jsonl")
        assert validation.errors == []
        assert validation.origin is not None
        assert validation.origin.data()["revision"] == "17"
        assert [case.id for case in validation.cases] == ["a", "b"]


@pytest.fixture
def hub(source: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setenv("HF_ENDPOINT", source.address)
    monkeypatch.setenv("HF_TOKEN", "hf_token_of_the_test")
    huggingface_hub.close_session()  # the library's client trusts the authority of the test before
    return source


def test_a_split_of_a_dataset_of_the_hub_is_read_part_by_part(hub: Source) -> None:
    first, second = CASES.splitlines(keepends=True)
    files = {"data/test-00000-of-00002.jsonl": first, "data/test-00001-of-00002.jsonl": second}
    hub.serve_dataset("org/refunds", {"README.md": b"", "data/train-00000-of-00001.jsonl": b"{}", **files})
    suite = "{path: hf://datasets/org/refunds, split: test, revision: v1}"
    validation = validated(suite)
    assert validation.errors == []
    assert [case.id for case in validation.cases] == ["a", "b"]
    assert validation.origin is not None
    assert validation.origin.data()["revision"] == COMMIT
    assert validation.origin.data()["bytes"] == len(CASES)
    tokens = {path: headers.get("Authorization", "") for path, headers in hub.requests}
    assert tokens["/datasets/org/refunds/resolve/" + COMMIT + "/data/test-00000-of-00002.jsonl"].endswith("of_the_test")
    hub.requests.clear()
    assert validated(suite).errors == []
    assert [urlsplit(path).path for path, _ in hub.requests] == ["/api/datasets/org/refunds/revision/v1"]


LAYOUT = [
    ".gitattributes",
    "README.md",
    "dataset_infos.json",
    "main/test-00000-of-00001.parquet",
    "main/train-00000-of-00001.parquet",
    "socratic/test-00000-of-00001.parquet",
]


@pytest.mark.parametrize(
    ("names", "path", "split", "chosen"),
    [
        (LAYOUT, "main", "test", ["main/test-00000-of-00001.parquet"]),
        (LAYOUT, "socratic", None, ["socratic/test-00000-of-00001.parquet"]),
        (LAYOUT, "main/train-00000-of-00001.parquet", None, ["main/train-00000-of-00001.parquet"]),
        (["README.md", "cases.csv"], "", None, ["cases.csv"]),
        (["test.jsonl", "testing.jsonl", "latest.jsonl"], "", "test", ["test.jsonl"]),
        (LAYOUT, "", "test", "has several files: main/test-00000-of-00001.parquet, socratic/test"),
        (LAYOUT, "main", None, r"has several files: .*\(give split"),
        (LAYOUT, "main", "dev", "has no file of the split dev"),
        (LAYOUT, "other", None, "has no data file there"),
        (LAYOUT, "README.md", None, "the ending does not say what format it is"),
        (["cases.csv"], "cases.csv", "test", "names one file, which has no splits"),
        (["README.md"], "", None, "has no data file there"),
        (["t-00001-of-00002.csv"], "", None, "has not all parts of a file"),
        (["t-00000-of-00003.csv", "t-00002-of-00003.csv"], "", None, "has not all parts of a file"),
    ],
)
def test_which_file_of_a_dataset_is_meant_is_never_guessed(
    names: list[str], path: str, split: str | None, chosen: list[str] | str
) -> None:
    address = f"hf://datasets/org/name/{path}".rstrip("/")
    if isinstance(chosen, str):
        with pytest.raises(InputError, match=chosen):
            remote._chosen(names, path, split, address)
    else:
        assert remote._chosen(names, path, split, address) == chosen


def test_the_card_of_a_dataset_says_which_files_a_split_has(hub: Source) -> None:
    files = {
        "held_out.jsonl": CASES,
        "test_of_last_year.jsonl": b"no json",
        "more/part-00000-of-00002.jsonl": b'{"id": "c", "input": 3}',
        "more/part-00001-of-00002.jsonl": b'{"id": "d", "input": 4}',
    }
    test = {"split": "test", "path": ["held_out.*", "**/part-*"]}
    main = {"config_name": "main", "data_files": [{"split": "train", "path": "train.jsonl"}, test]}
    hub.serve_dataset("org/card", files, [main])
    validation = validated("{path: hf://datasets/org/card, split: test}")
    assert validation.require()
    assert [case.id for case in validation.cases] == ["a", "b", "c", "d"]
    assert "has no split dev (there are train, test)" in told("{path: hf://datasets/org/card/main, split: dev}")
    assert "has several splits: train, test (give one, as in `split: train`)" in told("hf://datasets/org/card")
    assert "of files that are not there: train.jsonl" in told("{path: hf://datasets/org/card, split: train}")

    hub.serve_dataset("org/two", files, [main, {"config_name": "hard", "data_files": "held_out.jsonl"}])
    assert "main, hard (name one, as in hf://datasets/org/two/main)" in told("hf://datasets/org/two")
    assert validated("hf://datasets/org/two/hard").require()
    assert validated("hf://datasets/org/two/held_out.jsonl").require()

    hub.serve_dataset("org/odd", {"a.jsonl": CASES}, [1, {"config_name": "x", "data_files": [{"path": {}}, 1]}])
    assert validated("hf://datasets/org/odd").require()


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("a/b.jsonl", "a/*.jsonl", True),
        ("a/b/c.jsonl", "a/*.jsonl", False),
        ("a/b/c.jsonl", "**/*.jsonl", True),
        ("c.jsonl", "**/*.jsonl", True),
        ("a/b.jsonl", "a/**", True),
        ("a/b.jsonl", "**/**/b.jsonl", False),
    ],
)
def test_a_star_stands_for_a_part_of_a_name_and_two_for_folders(name: str, pattern: str, fits: bool) -> None:
    assert remote.fits(name.split("/"), pattern.split("/")) is fits


def test_what_is_wrong_with_a_dataset_of_the_hub_is_said(hub: Source) -> None:
    def with_code(code: str, status_code: int) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status_code)
            handler.send_header("X-Error-Code", code)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return answer

    hub.answers["/api/datasets/org/none"] = with_code("RepoNotFound", 404)
    hub.answers["/api/datasets/org/gated"] = with_code("GatedRepo", 403)
    hub.answers["/api/datasets/org/old/revision/v9"] = with_code("RevisionNotFound", 404)
    assert "the hub has no such dataset" in told("hf://datasets/org/none")
    assert "accept its terms on the hub, and set HF_TOKEN" in told("hf://datasets/org/gated")
    assert "has no such revision" in told("{path: hf://datasets/org/old, revision: v9}")
    for answer in (b"<html>no json</html>", b"[]", status(500)):
        hub.answers["/api/datasets/org/broken"] = answer
        with pytest.raises(InfrastructureError, match="cannot be fetched"):
            fetch_cases("hf://datasets/org/broken", None, None, None)
    hub.serve_dataset("org/changed", {"cases.jsonl": CASES}, sha256="0" * 64)
    with pytest.raises(InfrastructureError, match=r"its SHA-256 is .*, and should be 000"):
        fetch_cases("hf://datasets/org/changed", None, None, None)


def test_two_downloads_at_once_do_not_disturb_each_other(source: Source) -> None:
    source.answers["/cases.jsonl"] = CASES * 1_000
    downloaded: list[Download] = []
    threads = [
        threading.Thread(target=lambda: downloaded.append(fetch(f"{source.address}/cases.jsonl"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {download.sha256 for download in downloaded} == {hashlib.sha256(CASES * 1_000).hexdigest()}
    assert all(download.path.read_bytes() == CASES * 1_000 for download in downloaded)
