"""What a path over the evaluation context can find (FEP 2.3.1), as far as that is known before there is one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fepflow.documents.did_you_mean import did_you_mean
from fepflow.jsonpath.path import Key

CONTEXT: Mapping[str, Sequence[str]] = {
    "test_case": ("id", "input", "expected", "metadata"),
    "output": ("value", "metadata"),
}

_ELSEWHERE = {
    **dict.fromkeys(("input", "question", "query", "prompt", "vars"), "did you mean $.test_case.input?"),
    **dict.fromkeys(("expected", "reference", "groundtruth", "ideal"), "did you mean $.test_case.expected?"),
    **dict.fromkeys(("value", "answer", "response", "result", "actual", "text"), "did you mean $.output.value?"),
    **dict.fromkeys(("expectedoutput", "target"), "did you mean $.test_case.expected?"),
    **dict.fromkeys(("id", "case"), "did you mean $.test_case.id?"),
    "metadata": "did you mean $.test_case.metadata, or $.output.metadata?",
}
_OF_CASE = {
    **dict.fromkeys(("question", "inputs", "prompt", "query"), "did you mean $.test_case.input?"),
    **dict.fromkeys(
        ("answer", "reference", "target", "expectedoutput", "output"), "did you mean $.test_case.expected?"
    ),
}
_OF_OUTPUT = dict.fromkeys(
    ("answer", "text", "content", "response", "result", "output"), "did you mean $.output.value?"
)
_LOOKS_LIKE_A_PATH = re.compile(r"\$?\.?\{{0,2}\s*\$?\.?(outputs?|test_?cases?)\.(\w+)[\w.\[\]]*\s*\}{0,2}")
_BARE_WORD = re.compile(
    r"(?:outputs?|test_?cases?|inputs?|expected|question|answer|response|context|vars)\b", re.IGNORECASE
)


def context_problem(keys: Sequence[Key]) -> tuple[str, str] | None:
    """What is wrong with a path that begins with these keys, and what to do about it; None if it may find something."""
    if not keys:
        return None
    first = keys[0]
    if first not in CONTEXT:
        return f"$.{first} is not there: a check sees $.test_case and $.output", _meant(
            first, list(CONTEXT), _ELSEWHERE
        )
    if len(keys) > 1 and keys[1] not in CONTEXT[str(first)]:
        known = CONTEXT[str(first)]
        whose = _OF_CASE if first == "test_case" else _OF_OUTPUT
        message = f"$.{first} has no {keys[1]}, only {', '.join(known)}"
        return message, _meant(keys[1], known, whose, f"$.{first}.")
    return None


def _meant(name: Key, known: Sequence[str], elsewhere: Mapping[str, str], before: str = "$.") -> str:
    advice = did_you_mean(str(name), known, elsewhere)
    return re.sub(r"^did you mean (?=\w)", f"did you mean {before}", advice)


def meant_path(text: str) -> str | None:
    """The path that a text was meant to be which is none, such as `output.value`; None for any other text."""
    match = _LOOKS_LIKE_A_PATH.fullmatch(text)
    if match is None or text.startswith("$."):
        return None
    return "$." + text.strip("{} ").lstrip("$").lstrip(".")


def is_word_of_context(name: str) -> bool:
    """Whether a placeholder's name without `$.` is likely to mean a part of the context."""
    return _BARE_WORD.match(name) is not None
