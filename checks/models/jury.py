"""A jury: the judgements of several models made into one, with their agreement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from fepflow.checks.models.voting import Sample, combine, error_of, failure_of_all, sums
from fepflow.errors import ModelError
from fepflow.text import plural

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
