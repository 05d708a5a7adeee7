"""Several samples of a judge, or the judges of a jury, made into one response, with their agreement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Literal

from fepflow.errors import ModelError, RunLimitExceededError
from fepflow.json.values import referred
from fepflow.text import plural

FieldPath = tuple[str, ...]
Kind = Literal["vote", "median"]

SUMMED = ("prompt_tokens", "completion_tokens", "cost_usd", "seconds", "attempts")
"""Metadata of samples that is summed."""

PASSED: FieldPath = ("passed",)

_MAX_ERROR = 200
_MOST_REFERENCES = 8
_NOTHING = None
"""The value of a field that a sample leaves out, or null."""


@dataclass(frozen=True)
class Sample:
    """One response that fits its schema, and its metadata."""

    response: dict[str, Any]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class _Decided:
    """The decision for one field: `value`, by vote or median, of the samples' `values`."""

    path: FieldPath
    kind: Kind
    value: Any
    values: list[Any]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def agreeing(self) -> int:
        return sum(_same(value, self.value) for value in self.values)


def combine(samples: Sequence[Sample | Exception], schema: dict[str, Any], called: str = "samples") -> Sample:
    """Combine samples, which are `called` so in messages: the majority's booleans and texts of an enumeration, the
    median of numbers, and everything else from a sample that agrees with them.

    A majority is more than half of all that were asked, those that failed (exceptions) included. Raises ModelError of
    the kind `undecided` where there is none; one failure itself, if it is for failures that there can be none.
    """
    answered = [sample for sample in samples if isinstance(sample, Sample)]
    failures = [sample for sample in samples if isinstance(sample, Exception)]
    if 2 * len(answered) <= len(samples):
        raise failure_of_all(samples, called)
    responses = [sample.response for sample in answered]
    decided = [
        _decided(path, kind, [_at(response, path) for response in responses], failures, f"{len(samples)} {called}")
        for path, kind in _fields(schema, schema, responses, ())
    ]
    chosen = min(range(len(answered)), key=lambda number: _distance(decided, number))
    response = deepcopy(responses[chosen])
    for decision in decided:
        _put(response, decision, responses)
    details = {"samples": _details(samples, decided)}
    return Sample(response, {**answered[chosen].metadata, **sums(samples), **details})


def failure_of_all(samples: Sequence[Sample | Exception], called: str) -> Exception:
    """Return the failure that stands for all: a limit of the run, else a retryable one, if there is one."""
    failures = [sample for sample in samples if isinstance(sample, Exception)]
    worst = min(
        failures, key=lambda one: (not isinstance(one, RunLimitExceededError), not getattr(one, "recoverable", False))
    )
    failure = worst.__class__.__new__(worst.__class__)  # a copy: others may have been handed the same
    failure.__dict__.update(worst.__dict__)
    failure.args = (f"{len(failures)} of {len(samples)} {called} failed, and the others are no majority: {worst}",)
    return failure


def _fields(
    schema: dict[str, Any], root: dict[str, Any], values: Sequence[dict[str, Any]], above: FieldPath
) -> Iterator[tuple[FieldPath, Kind]]:
    """Yield the fields that can be counted, and how, in their order."""
    for name in dict.fromkeys(name for value in values for name in value):
        present = [value[name] for value in values if value.get(name) is not None]
        known = resolved_schema(schema.get("properties", {}).get(name), root)
        if present and all(isinstance(value, dict) for value in present):
            yield from _fields(known, root, present, (*above, name))
        elif present and (kind := _kind(known, present)):
            yield (*above, name), kind


def _kind(schema: dict[str, Any], values: Sequence[Any]) -> Kind | None:
    if all(isinstance(value, bool) for value in values):
        return "vote"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "median"
    scalar = all(isinstance(value, str | int | float) for value in values)
    return "vote" if scalar and ("enum" in schema or "const" in schema) else None


def resolved_schema(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Return a field's schema without its references, and without the `null` beside it."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict):
            break
        if "$ref" in schema:
            schema = referred(root, str(schema["$ref"]))
        elif branches := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            schema = next((branch for branch in branches if branch != {"type": "null"}), None)
        else:
            return schema
    return {}


def _decided(path: FieldPath, kind: Kind, values: list[Any], failures: Sequence[Exception], asked: str) -> _Decided:
    n_samples = len(values) + len(failures)
    present = [value for value in values if value is not _NOTHING]
    if kind == "median" and 2 * len(present) > n_samples:
        return _Decided(path, kind, median_low(present), values)
    texts = [json.dumps(value, ensure_ascii=False, default=repr) for value in values]
    votes = Counter(texts)
    words, most = votes.most_common(1)[0]
    if 2 * most <= n_samples:
        details = ", ".join(f"{count} x {words}" for words, count in votes.most_common())
        failed = f", and {len(failures)} failed ({failures[0]})" if failures else ""
        message = f"{asked} give no majority for {'.'.join(path)}: {details}{failed}"
        raise ModelError(
            message, kind="undecided", retryable=any(getattr(one, "recoverable", False) for one in failures)
        )
    return _Decided(path, kind, values[texts.index(words)], values)


def _same(one: Any, other: Any) -> bool:
    # True is 1 for Python.
    return type(one) is type(other) and one == other


def _distance(decided: Sequence[_Decided], number: int) -> tuple[int, int, float, int]:
    """Return the distance of a sample from the decisions, `passed` first: the reasons of the nearest one are taken."""
    against = [
        decision
        for decision in decided
        if decision.kind == "vote" and not _same(decision.values[number], decision.value)
    ]
    beside = [_aside(decision, decision.values[number]) for decision in decided if decision.kind == "median"]
    return any(decision.path == PASSED for decision in against), len(against), sum(beside), number


def _aside(decision: _Decided, value: Any) -> float:
    """Return how far a number is from the median, in terms of the spread: 0 to 1."""
    if value is _NOTHING or decision.value is _NOTHING:
        return float(value is not decision.value)
    numbers = [value for value in decision.values if value is not _NOTHING]
    spread = max(numbers) - min(numbers)
    return abs(value - decision.value) / spread if spread else 0.0


def _at(response: Any, path: FieldPath) -> Any:
    for name in path:
        response = response.get(name) if isinstance(response, dict) else _NOTHING
    return response


def _put(response: dict[str, Any], decision: _Decided, responses: Sequence[dict[str, Any]]) -> None:
    """Set the response's field to the decision; a field that is left out is left out as in a sample that does so."""
    *above, name = decision.path
    parent: Any = response
    for step in above:
        if not isinstance(parent.get(step), dict):
            if decision.value is _NOTHING:
                return
            parent[step] = {}
        parent = parent[step]
    if decision.value is not _NOTHING:
        parent[name] = decision.value
    elif name in parent:
        like = next(other for other in responses if _at(other, decision.path) is _NOTHING)
        if name in (_at(like, tuple(above)) or {}):
            parent[name] = None
        else:
            del parent[name]


def _details(samples: Sequence[Sample | Exception], decided: Sequence[_Decided]) -> dict[str, Any]:
    """Return the values of each sample, without its texts, and their agreement; a failed sample agrees with none."""
    n_samples = len(samples)
    return {
        "asked": n_samples,
        "failed": sum(isinstance(sample, Exception) for sample in samples),
        "agreement": {
            decision.name: round(decision.agreeing / n_samples, 4) for decision in decided if decision.kind == "vote"
        },
        "spread": {decision.name: _spread(decision.values) for decision in decided if decision.kind == "median"},
        "said": [_sample_values(sample, decided) for sample in samples],
    }


def _spread(values: Sequence[Any]) -> list[Any]:
    numbers = [value for value in values if value is not _NOTHING]
    return [min(numbers), max(numbers)]


def _sample_values(sample: Sample | Exception, decided: Sequence[_Decided]) -> dict[str, Any]:
    if isinstance(sample, Sample):
        return {decision.name: _at(sample.response, decision.path) for decision in decided}
    return error_of(sample)


def error_of(failure: Exception) -> dict[str, Any]:
    """Return what is kept of a sample that failed."""
    return {"error": str(failure)[:_MAX_ERROR]}


def sums(samples: Sequence[Sample | Exception]) -> dict[str, Any]:
    """Return what all took together; None unless it is known of each, which it is not of one that failed."""
    metadata = [sample.metadata if isinstance(sample, Sample) else {} for sample in samples]
    sums: dict[str, Any] = {
        name: _sum([details.get(name) for details in metadata])
        for name in SUMMED
        if any(name in details for details in metadata)
    }
    if any("cached" in details for details in metadata):
        sums["cached"] = all(details.get("cached") is True for details in metadata if details)
    return sums


def _sum(values: Sequence[Any]) -> Any:
    known = [value for value in values if isinstance(value, int | float)]
    return round(sum(known), 9) if len(known) == len(values) else None


Jury = Literal["majority", "mean"]

JUDGES = "judges"


@dataclass(frozen=True)
class JuryRule:
    """Rule by which a jury decides.

    `passes` says whether a mean score does, None if no score decides; `scale` has the lowest and the highest score that
    a judge may give, None if they are not known. `lost` are members of a response that are unknown while a judge is
    missing.
    """

    kind: Jury
    schema: dict[str, Any]
    passes: Callable[[float], bool | None]
    scale: tuple[float, float] | None
    lost: tuple[str, ...] = ()


def decide(answers: Sequence[Sample | Exception], names: Sequence[str], rule: JuryRule) -> Sample:
    """Return the jury's judgement.

    A judge that failed is missing: the decision stands only if no verdict of the missing ones could change it. Raises
    ModelError of the kind `undecided` where one could, or where there is no majority; a failure, if all failed.
    """
    sample = _mean(answers, rule) if rule.kind == "mean" else _majority(answers, rule)
    details = sample.metadata.pop("samples")
    details["said"] = [{"judge": name, **said} for name, said in zip(names, details["said"], strict=True)]
    if details["failed"]:
        for name in rule.lost:
            sample.response.pop(name, None)
    metadata = {**sample.metadata, "model": ", ".join(names), "jury": {"decides": rule.kind, **details}}
    return Sample(sample.response, metadata)


def _majority(answers: Sequence[Sample | Exception], rule: JuryRule) -> Sample:
    sample = combine(answers, rule.schema, JUDGES)
    details = sample.metadata["samples"]
    if details["failed"] and not details["agreement"]:
        raise _undecided(answers, "the numbers of the others do not say which it would have given")
    return sample


def _mean(answers: Sequence[Sample | Exception], rule: JuryRule) -> Sample:
    answered = [answer for answer in answers if isinstance(answer, Sample)]
    missing = len(answers) - len(answered)
    if not answered:
        raise failure_of_all(answers, JUDGES)
    scores = [_score(sample) for sample in answered]
    mean = rounded(sum(scores) / len(scores))
    passed = rule.passes(mean)
    if missing and (rule.scale is None or passed is None):
        raise _undecided(answers, "nothing says how far it would have moved the mean")
    if missing and rule.scale is not None:
        lowest, highest = ((sum(scores) + missing * end) / len(answers) for end in rule.scale)
        if rule.passes(rounded(lowest)) != rule.passes(rounded(highest)):
            raise _undecided(answers, f"with it the mean would be {lowest:.2f} to {highest:.2f}")
    votes = [sample.response.get("passed") if passed is None else rule.passes(score)
             for sample, score in zip(answered, scores, strict=True)]  # fmt: skip
    if passed is None and all(isinstance(vote, bool) for vote in votes):
        passed = _vote(votes)
    chosen = min(range(len(answered)), key=lambda n: (votes[n] != passed, abs(scores[n] - mean), n))
    response = {**deepcopy(answered[chosen].response), "score": mean}
    if passed is not None:
        response["passed"] = passed
    said = iter(zip(votes, scores, strict=True))
    details = {
        "asked": len(answers),
        "failed": missing,
        "agreement": {} if passed is None else {"passed": round(votes.count(passed) / len(answers), 4)},
        "spread": {"score": [min(scores), max(scores)]},
        "said": [
            dict(zip(("passed", "score"), next(said), strict=True)) if isinstance(answer, Sample) else error_of(answer)
            for answer in answers
        ],
    }
    return Sample(response, {**answered[chosen].metadata, **sums(answers), "samples": details})


def _score(sample: Sample) -> float:
    score = sample.response.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ModelError("a judge gave no score, so there is no mean", kind="undecided")
    return float(score)


def _vote(votes: Sequence[Any]) -> bool:
    """Return the majority's vote; a tie is none."""
    yes = sum(vote is True for vote in votes)
    if 2 * yes == len(votes):
        raise ModelError(f"{len(votes)} judges give no majority for passed", kind="undecided")
    return 2 * yes > len(votes)


def _undecided(answers: Sequence[Sample | Exception], why: str) -> ModelError:
    failures = [answer for answer in answers if isinstance(answer, Exception)]
    message = f"{len(failures)} of {plural(len(answers), 'judge')} failed, and {why}: {failures[0]}"
    retryable = any(getattr(failure, "recoverable", False) for failure in failures)
    return ModelError(message, kind="undecided", retryable=retryable)


def rounded(score: float) -> float:
    """Return a score without the noise of its computation, which could move it across a limit."""
    return round(score, 6)
