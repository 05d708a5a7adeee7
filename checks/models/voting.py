"""Several samples of a judge, or the judges of a jury, made into one response, with their agreement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    def numbers(self) -> list[Any]:
        return [value for value in self.values if value is not None]

    @property
    def agreeing(self) -> int:
        return sum(_same(value, self.value) for value in self.values)


def combine(samples: Sequence[Sample | Exception], schema: dict[str, Any], called: str = "samples") -> Sample:
    """Combine samples into one: the majority's booleans and texts of an enumeration, and the median of numbers.

    Everything else comes from a sample that agrees with these. `called` is the name of samples in messages. A majority
    is more than half of all samples, including failed ones (exceptions). Raises ModelError of the kind `undecided`
    without a majority, and a failure itself if there are too many failures for a majority.
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
    return Sample(response, {**answered[chosen].metadata, **_usage(samples), **details})


def failure_of_all(samples: Sequence[Sample | Exception], called: str) -> Exception:
    """Return the failure that represents all: a limit of the run first, then a retryable one."""
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
    """Yield the fields that can be combined, and how, in their order."""
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
    present = [value for value in values if value is not None]
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
    """Return the distance of a sample from the decisions, `passed` first. The texts of the nearest sample are used."""
    against = [
        decision
        for decision in decided
        if decision.kind == "vote" and not _same(decision.values[number], decision.value)
    ]
    distances = [_from_median(decision, decision.values[number]) for decision in decided if decision.kind == "median"]
    return any(decision.path == PASSED for decision in against), len(against), sum(distances), number


def _from_median(decision: _Decided, value: Any) -> float:
    """Return the distance of a number from the median as a share of the spread, 0 to 1."""
    if value is None or decision.value is None:
        return float(value is not decision.value)
    spread = max(decision.numbers) - min(decision.numbers)
    return abs(value - decision.value) / spread if spread else 0.0


def _at(response: Any, path: FieldPath) -> Any:
    for name in path:
        response = response.get(name) if isinstance(response, dict) else None
    return response


def _put(response: dict[str, Any], decision: _Decided, responses: Sequence[dict[str, Any]]) -> None:
    """Set the response's field to the decision. A field without a value is absent or null, as a sample has it."""
    *above, name = decision.path
    parent: Any = response
    for step in above:
        if not isinstance(parent.get(step), dict):
            if decision.value is None:
                return
            parent[step] = {}
        parent = parent[step]
    if decision.value is not None:
        parent[name] = decision.value
    elif name in parent:
        like = next(other for other in responses if _at(other, decision.path) is None)
        if name in (_at(like, tuple(above)) or {}):
            parent[name] = None
        else:
            del parent[name]


def _details(samples: Sequence[Sample | Exception], decided: Sequence[_Decided]) -> dict[str, Any]:
    """Return the values of each sample, without its texts, and their agreement. A failed sample disagrees."""
    n_samples = len(samples)
    return {
        "asked": n_samples,
        "failed": sum(isinstance(sample, Exception) for sample in samples),
        "agreement": {
            decision.name: round(decision.agreeing / n_samples, 4) for decision in decided if decision.kind == "vote"
        },
        "spread": {
            decision.name: [min(decision.numbers), max(decision.numbers)]
            for decision in decided
            if decision.kind == "median"
        },
        "said": [
            {decision.name: _at(sample.response, decision.path) for decision in decided}
            if isinstance(sample, Sample)
            else error_of(sample)
            for sample in samples
        ],
    }


def error_of(failure: Exception) -> dict[str, Any]:
    """Return the record of a sample that failed."""
    return {"error": str(failure)[:_MAX_ERROR]}


def sums(metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the usage of several answers together; None for a figure that is not known of each of them."""
    names = {name for details in metadata for name in details}
    sums: dict[str, Any] = {}
    for name in names.intersection(SUMMED):
        values = [details.get(name) for details in metadata]
        known = all(isinstance(value, int | float) for value in values)
        sums[name] = round(sum(values), 9) if known else None  # type: ignore[arg-type]  # all are numbers
    if "cached" in names:
        sums["cached"] = all(details.get("cached") is True for details in metadata if details)
    return sums


def _usage(samples: Sequence[Sample | Exception]) -> dict[str, Any]:
    """Return the usage of samples together; that of a failed one is not known."""
    return sums([sample.metadata if isinstance(sample, Sample) else {} for sample in samples])


Jury = Literal["majority", "mean"]

JUDGES = "judges"


@dataclass(frozen=True)
class JuryRule:
    """Rule by which a jury decides.

    `passes` returns whether a mean score passes, None if no score decides. `scale` has the lowest and the highest score
    that a judge may give, None if they are not known. `lost` are members of a response that are unknown while a judge
    is missing.
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
    return Sample(response, {**answered[chosen].metadata, **_usage(answers), "samples": details})


def _score(sample: Sample) -> float:
    score = sample.response.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ModelError("a judge gave no score, so there is no mean", kind="undecided")
    return float(score)


def _vote(votes: Sequence[Any]) -> bool:
    """Return the vote of the majority. Raises ModelError for a tie."""
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
    """Return a score without rounding errors, which could move it across a limit."""
    return round(score, 6)
