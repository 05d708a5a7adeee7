"""Logs of inspect_ai: scores keep what they mean, and an error, an invalid or a missing sample never passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import InputError
from fepflow.imports import inspect_ai
from fepflow.imports.imported import Imported, Score
from fepflow.imports.inspect_ai import read
from fepflow.imports.source import Source
from fepflow.services.imports import read_import
from tests.fepflow.conftest import Cli
from tests.fepflow.imports.inspect_logs import header, sample, write_eval, write_zip


def imported(path: Path) -> Imported:
    return read_import(path).imported


def of(tmp_path: Path, *samples: dict[str, Any], **head: Any) -> Imported:
    return imported(write_eval(tmp_path / "log.eval", header(**head), samples))


def scores_of(result: Imported) -> list[dict[str, Score]]:
    return [output.scores for output in result.runs[0].outputs]


def hands(result: Imported) -> str:
    return "\n".join(map(str, result.notes.problems()))


@pytest.mark.parametrize("method", ["stored", "deflated", "zstandard"])
def test_both_formats_and_all_packings_of_a_log_are_the_same(tmp_path: Path, method: str) -> None:
    samples = [sample("a", epoch) for epoch in (1, 2)]
    packed = imported(write_eval(tmp_path / "log.eval", header(["a"], 2), samples, method))
    (tmp_path / "log.json").write_text(json.dumps({**header(["a"], 2), "samples": samples}))
    plain = imported(tmp_path / "log.json")
    assert (packed.cases, packed.runs) == (plain.cases, plain.runs)
    assert packed.cases == [{"id": "a", "input": "question a", "expected": "Paris"}]
    assert (packed.runs[0].repeats, packed.version, packed.name) == (2, "2", "capitals")
    assert packed.notes.is_complete


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("C", Score(True, 1.0)),
        ("I", Score(False, 0.0)),
        ("N", Score(False, 0.0)),
        ("P", Score(None, 0.5)),
        (True, Score(True, 1.0)),
        (0.25, Score(None, 0.25)),
        (1, Score(None, 1.0)),
        ("0.5", Score(None, 0.5)),
        ("yes", Score(None, 1.0)),
        (None, Score(error="the scorer gave no score: refused")),
        (float("nan"), Score(error="the scorer gave no score: refused")),
    ],
)
def test_a_value_is_a_pass_or_a_score_and_an_unscored_sample_is_neither(
    tmp_path: Path, value: Any, score: Score
) -> None:
    reason = {"reason": "refused"} if score.error else {}
    result = of(tmp_path, sample(scores={"s": {"value": value, **reason}}))
    assert scores_of(result) == [{"s": score}]


def test_ones_and_zeros_are_right_and_wrong_only_where_the_log_takes_their_accuracy(tmp_path: Path) -> None:
    samples = [sample(str(i), scores={"s": {"value": i}}) for i in (0, 1)]
    metrics = [{"name": "s", "scorer": "s", "metrics": {"accuracy": {"value": 0.5}}}]
    judged = of(tmp_path, *samples, results={"scores": metrics})
    assert [scores["s"].passed for scores in scores_of(judged)] == [False, True]
    metrics[0]["metrics"] = {"mean": {"value": 0.5}}
    assert [scores["s"].passed for scores in scores_of(of(tmp_path, *samples, results={"scores": metrics}))] == [
        None
    ] * 2


def test_letters_that_are_choices_are_no_grades(tmp_path: Path) -> None:
    result = of(tmp_path, *(sample(letter, scores={"choice": {"value": letter}}) for letter in "ABCI"))
    assert scores_of(result) == [{}] * 4
    assert "the scores of 'choice' are left out: they are labels such as 'A', 'B'" in hands(result)


def test_parts_of_a_score_are_checks_of_their_own_and_lists_need_a_hand(tmp_path: Path) -> None:
    scores = {"graded": {"value": {"style": 0.5, "fact": "C", "tone": None}}, "many": {"value": [1, 0]}}
    result = of(tmp_path, sample(scores=scores))
    assert result.runs[0].checks == ["graded.style", "graded.fact", "graded.tone"]
    assert scores_of(result)[0]["graded.tone"].error == "the scorer gave no score"
    assert "the scores of 'many' are left out: they are lists" in hands(result)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"error": {"message": "RuntimeError('broke')", "traceback": "..."}}, "RuntimeError('broke')"),
        ({"invalidation": {"author": "me", "reason": "leaked"}}, "the sample was declared invalid: leaked"),
    ],
)
def test_a_sample_with_an_error_or_declared_invalid_is_an_error_whatever_its_score(
    tmp_path: Path, fields: dict[str, Any], error: str
) -> None:
    result = of(tmp_path, sample(**fields))
    (output,) = result.runs[0].outputs
    assert (output.error, output.value, output.scores) == (error, None, {})
    assert "a sample that ended in an error, or is invalid, has scores" in hands(result)


def test_samples_that_are_not_in_the_log_are_missing_in_the_run(tmp_path: Path, cli: Cli) -> None:
    log = write_eval(tmp_path / "log.eval", header(["a", "b"], 2, status="cancelled"), [sample("a", 1), sample("a", 2)])
    result = imported(log)
    assert [case["id"] for case in result.cases] == ["a", "b"]
    assert "missing in the log, and so in the run: 2 samples" in hands(result)
    assert "the status 'cancelled'" in hands(result)
    ran = cli("import", log, "--strict")
    assert ran.exit_code == 1
    assert "INCONCLUSIVE" in ran.stdout


def test_epochs_of_unequal_number_leave_outputs_missing(tmp_path: Path) -> None:
    result = of(tmp_path, sample("a", 1), sample("a", 2), sample("b", 1), ids=["a", "b"])
    assert result.runs[0].repeats == 2
    assert "missing in the log, and so in the run: 1 sample" in hands(result)


def test_a_scorer_without_a_score_for_one_sample_is_an_error_there(tmp_path: Path) -> None:
    result = of(tmp_path, sample("a"), sample("b", scores={}))
    assert scores_of(result)[1]["match"].error == "the log has no score of this scorer for the sample"


def test_a_mean_that_the_log_counts_in_another_way_is_told(tmp_path: Path) -> None:
    metrics = [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"value": 0.25}}}]
    result = of(tmp_path, sample("a"), sample("b"), results={"scores": metrics})
    assert "the accuracy or mean of 'match' is 0.25 in the file, but 1 by its cases" in hands(result)


def test_tokens_tools_limits_and_messages_come_over(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": "add", "arguments": {"x": 1}}]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "2"}]},
    ]
    given = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "attachment://abc"}]
    result = of(
        tmp_path,
        sample(
            input=given,
            attachments={"abc": "a long text"},
            messages=messages,
            model_usage={"m": {"total_tokens": 13, "total_cost": 0.5}},
            working_time=1.5,
            limit={"type": "token", "limit": 10},
            target=["Paris", "paris"],
            choices=["x", "y"],
        ),
    )
    assert result.cases[0]["input"][1] == {"role": "user", "content": "a long text"}
    assert (result.cases[0]["expected"], result.cases[0]["metadata"]) == (["Paris", "paris"], {"choices": ["x", "y"]})
    metadata = result.runs[0].outputs[0].metadata
    assert (metadata["tokens"], metadata["usd"], metadata["latency_ms"]) == (13, 0.5, 1500.0)
    assert metadata["limit"] == {"type": "token", "limit": 10}
    assert metadata["tool_calls"][0] == {"name": "add", "arguments": {"x": 1}, "result": "2", "error": None, "ms": None}


@pytest.mark.parametrize(
    ("head", "samples", "message"),
    [
        (header(version=3), [sample()], "is a log of inspect_ai in version 3; version 2 can be read"),
        (header(status="error"), [], "holds no samples, only the header of an evaluation with the status 'error'"),
    ],
)
def test_other_versions_and_logs_without_samples_are_refused_by_name(
    tmp_path: Path, head: dict[str, Any], samples: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        imported(write_eval(tmp_path / "log.eval", head, samples))
    (tmp_path / "log.json").write_text(json.dumps({**head, "samples": samples or None}))
    with pytest.raises(InputError, match=message):
        imported(tmp_path / "log.json")


def test_a_damaged_sample_is_an_error_and_the_others_come_over(tmp_path: Path) -> None:
    log = write_eval(tmp_path / "log.eval", header(["a", "b"]), [sample("a"), sample("b", answer="x" * 50)], "stored")
    log.write_bytes(log.read_bytes().replace(b"x" * 50, b"y" * 50))
    result = imported(log)
    assert [output.error is None for output in result.runs[0].outputs] == [True, False]
    assert "samples/b_epoch_1.json is damaged: its checksum or its size is another one" in hands(result)


def test_a_member_that_unpacks_to_more_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    members = [("header.json", json.dumps(header(["a"])).encode()), ("samples/a_epoch_1.json", b"0" * 300_000_000)]
    log = write_zip(tmp_path / "log.eval", members, "zstandard")
    assert log.stat().st_size < 100_000
    assert "is larger than 200,000,000 bytes" in str(imported(log).runs[0].outputs[0].error)
    lying = log.read_bytes().replace((300_000_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little"))
    log.write_bytes(lying)
    assert "is damaged" in str(imported(log).runs[0].outputs[0].error)


@pytest.mark.parametrize("content", [b"PK\x03\x04 and nothing more", b"", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_log_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log.eval"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is not a whole zip archive|has no header\.json"):
        read(Source(path, "log.eval"))


def test_of_a_sample_that_stands_twice_the_last_one_counts(tmp_path: Path) -> None:
    again = sample(answer="second")
    log = write_eval(tmp_path / "log.eval", header(), [sample(answer="first"), again])
    assert [output.value for output in imported(log).runs[0].outputs] == ["second"]


def test_the_newer_layout_of_large_samples_is_read(tmp_path: Path) -> None:
    shell = {name: value for name, value in sample().items() if name != "messages"}
    members = [("header.json", header()), ("samples/a_epoch_1/sample.json", shell)]
    members += [("samples/a_epoch_1/metadata.json", {"k": 1}), ("samples/a_epoch_1/messages/0.json", {})]
    log = write_zip(tmp_path / "log.eval", [(name, json.dumps(data).encode()) for name, data in members], "zstandard")
    result = imported(log)
    assert result.cases[0]["metadata"] == {"k": 1}
    assert scores_of(result) == [{"match": Score(True, 1.0)}]


def test_a_folder_of_logs_of_one_task_is_a_run_of_each_model(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number, model in enumerate(("m1", "m2")):
        head = header(["a"])
        head["eval"]["model"] = model
        write_eval(folder / f"{number}.eval", head, [sample("a")])
    result = imported(folder)
    assert [run.variant for run in result.runs] == [{"model": "m1"}, {"model": "m2"}]
    assert len(result.cases) == 1
    other = header(["a"])
    other["eval"]["task"] = "rivers"
    write_eval(folder / "2.eval", other, [sample("a")])
    with pytest.raises(InputError, match="holds logs of several tasks, capitals and rivers"):
        imported(folder)


def test_a_log_that_was_declared_invalid_needs_a_hand(tmp_path: Path) -> None:
    assert "the log was declared invalid" in hands(of(tmp_path, sample(), invalidated=True))
    assert "invalid" not in hands(of(tmp_path, sample(), invalidated=False))


@pytest.mark.parametrize(("name", "is_told"), [("is_toxic", True), ("harmless", False), ("correct", False)])
def test_a_true_that_is_likely_bad_news_is_told(tmp_path: Path, name: str, is_told: bool) -> None:
    told = hands(of(tmp_path, sample(scores={name: {"value": True}})))
    assert ("its name suggests the opposite" in told) is is_told


@pytest.mark.parametrize("ids", [[], [1, "1"]])
def test_a_number_and_the_same_text_as_ids_are_refused(tmp_path: Path, ids: list[Any]) -> None:
    (tmp_path / "log.json").write_text(json.dumps({**header(ids), "samples": [sample(1), sample("1")]}))
    with pytest.raises(InputError, match="has two samples with the id '1', one as a number and one as a text"):
        imported(tmp_path / "log.json")


def test_an_id_that_the_header_writes_in_another_type_is_the_same(tmp_path: Path) -> None:
    result = of(tmp_path, sample(1), ids=["1"])
    assert [case["id"] for case in result.cases] == ["1"]
    assert result.notes.is_complete


def test_scores_that_differ_in_two_copies_of_a_sample_are_errors(tmp_path: Path) -> None:
    twice = [{"match": {"value": "C"}, "same": {"value": 1}}, {"match": {"value": "I"}, "same": {"value": 1}}]
    samples = [sample(scores=scores) for scores in twice]
    (tmp_path / "log.json").write_text(json.dumps({**header(), "samples": samples}))
    for result in (of(tmp_path, *samples), imported(tmp_path / "log.json")):
        (scores,) = scores_of(result)
        assert scores["match"] == Score(error="the sample appears twice in this epoch, with scores that differ")
        assert scores["same"].score == 1


def test_an_error_in_one_of_two_copies_of_a_sample_stays_one(tmp_path: Path) -> None:
    (output,) = of(tmp_path, sample(error={"message": "broke"}, scores={}), sample()).runs[0].outputs
    assert (output.error, output.value, output.scores) == ("broke", None, {})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_a_scorer_without_one_finite_value_is_a_check_in_error(tmp_path: Path, value: float) -> None:
    result = of(tmp_path, sample(scores={"s": {"value": value}}))
    assert result.runs[0].checks == ["s"]
    assert scores_of(result)[0]["s"].error is not None


@pytest.mark.parametrize("epoch", [-1, 0, 10**9])
def test_a_sample_of_an_epoch_that_cannot_be_is_named_and_missing(tmp_path: Path, epoch: int) -> None:
    samples = [sample("a"), sample("b", epoch)]
    (tmp_path / "log.json").write_text(json.dumps({**header(), "samples": samples}))
    for result in (of(tmp_path, *samples), imported(tmp_path / "log.json")):
        assert f"sample b: a sample has the epoch {epoch}, and is left out" in hands(result)
        assert len(result.cases) == 2
        assert (len(result.runs[0].outputs), result.runs[0].repeats) == (1, 1)
        assert "missing in the log, and so in the run: 1 sample" in hands(result)


def test_what_is_kept_of_a_log_is_bounded_and_what_is_dropped_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect_ai, "_MOST_KEPT", 2000)
    large = "x" * 1500
    assert len(of(tmp_path, *(sample(name, events=[large]) for name in "abc")).cases) == 3
    with pytest.raises(InputError, match="holds more than 2,000 bytes of inputs, outputs and metadata"):
        of(tmp_path, *(sample(name, metadata={"k": large}) for name in "abc"))
    with pytest.raises(InputError, match="holds more than 2,000 bytes"):
        of(tmp_path, *(sample("a", epoch, large) for epoch in (1, 2)))
