"""Why a check did not pass, in a sentence: computed from its result, so that results of earlier runs have one, too.

Each check type says it in `check_explanation`. A check that others wrote brings its own sentence in its results, as
`reason`: its class need not be at hand where the result is read. A sentence is one line without control characters;
it quotes agents, so escape it where markup is read.
"""

from __future__ import annotations

import re
from typing import Any

from fepflow.checks.core.sentences import MAX_PART, Given, number, redacted, shown, without_reason
from fepflow.checks.registry import our_checks
from fepflow.protocol.results import CheckResult, score_of
from fepflow.security.secret_names import is_secret_name
from fepflow.text import cut, printable

MAX_SENTENCE = 300

REASONS = (
    *("reason", "explanation", "reasoning", "rationale", "justification", "message", "feedback", "comment"),
    *("critique", "analysis"),
)
"""Names of results that hold a sentence, the first of them that is there."""

_MAX_REASON = 240
_PLACEHOLDER = re.compile(r"\$\{(\w{1,200}+)[^}]{0,500}+\}")
_OUTPUT = "$.output.value"


def explain(check: CheckResult) -> str:
    """The sentence: what the check wanted and what it got. Of one that passed: what it found, perhaps nothing."""
    if check.error is not None:
        return _line(_PLACEHOLDER.sub(r"\1", check.error.message), MAX_SENTENCE)
    if check.status == "skip":
        return "the check was skipped"
    reason = _reason(check)
    if check.passed is False and reason is None:
        return cut(_from_its_type(check) or _from_results(check) or _from_arguments(check), MAX_SENTENCE)
    return cut(reason or _from_results(check), MAX_SENTENCE)


def findings(check: CheckResult, limit: int) -> list[str]:
    """Results beyond pass or fail in full, each on a line, as far as the sentence does not say them.

    Values are cut to `limit`.
    """
    if check.error is not None:
        message = _PLACEHOLDER.sub(r"\1", check.error.message)
        return [] if message == explain(check) else [cut(printable(line), limit) for line in message.splitlines()]
    lines: list[str] = []
    sentence = explain(check)
    for name, value in _results_of(check).items():
        several = value if isinstance(value, list) and all(isinstance(item, str) for item in value) else [value]
        texts = [_of_result(item, limit) for item in several]
        lines += [f"{_name(name)}: {text}" for text in texts if text not in sentence]
    return lines


def arguments_of(check: CheckResult, limit: int) -> list[str]:
    """Return the check's arguments, each on a line, but for the output itself, configuration and defaults."""
    given = Given(check.resolved_arguments or {})
    arguments = {name: value for name, value in _about(check).items() if given.path(name) != _OUTPUT}
    return [f"{_name(name)}: {_of_result(value, limit)}" for name, value in arguments.items()]


def _from_its_type(check: CheckResult) -> str | None:
    """Return the sentence of the check's type; None of a type or a form of result that is not ours."""
    version = (check.metadata or {}).get("check_version")
    for check_class in our_checks(check.check_type):
        if version in (None, check_class.check_version):
            try:
                return check_class.check_explanation(Given(check.resolved_arguments or {}), check.results)
            except Exception:  # others may have written the result: it has whatever it has
                return None
    return None


def _reason(check: CheckResult) -> str | None:
    """The sentence among the results, with the score beside it."""
    results = _results_of(check)
    texts = (results[name] for name in REASONS if name in results)
    reason = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if reason is None:
        return None
    score = score_of(check)
    return _line(reason, _MAX_REASON) + ("" if score is None else f" (score {number(score)})")


def _from_results(check: CheckResult) -> str:
    """The results by name."""
    results = _results_of(check).items()
    return ", ".join(f"{_name(name)}: {_of_result(value, MAX_SENTENCE // 2)}" for name, value in results)


def _from_arguments(check: CheckResult) -> str:
    """Describe a check that told nothing by what it got."""
    arguments = _about(check)
    looked_up = {name: value for name, value in arguments.items() if Given(check.resolved_arguments or {}).path(name)}
    return without_reason(check.check_type, looked_up or arguments)


def _about(check: CheckResult) -> dict[str, Any]:
    """The arguments that say what a check was about: none about models, keys and functions, and no switch that is
    off."""
    given = Given(check.resolved_arguments or {})
    arguments = {name: redacted(given[name]) for name in given if not _is_configuration(name)}
    return {name: value for name, value in arguments.items() if value not in (None, {}) and value is not False}


def _results_of(check: CheckResult) -> dict[str, Any]:
    """The results that say more than pass or fail: what they hold, or the response of a model in them."""
    response = check.results.get("response")
    results = response if isinstance(response, dict) else check.results
    found = {name: value for name, value in results.items() if value not in (None, "", [], {})}
    if check.passed is not None:
        found.pop("passed", None)
    return found


def _of_result(value: Any, limit: int) -> str:
    if isinstance(value, str):
        return _line(value, limit)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return cut("; ".join(_line(item, limit) for item in value), limit)
    return number(value) if isinstance(value, float) else shown(value, limit)


def _name(name: str) -> str:
    return printable(cut(name, MAX_PART))


def _is_configuration(name: str) -> bool:
    """Return whether an argument configures a check and is not what it looks at: a model, its key, a function."""
    return name.endswith(("_config", "_function")) or is_secret_name(name)


def _line(text: str, limit: int) -> str:
    return printable(cut(" ".join(text[: 4 * limit].split()), limit))
