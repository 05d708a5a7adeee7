"""`json_diff`: JSON as it was expected, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictBool
from typing_extensions import TypedDict

from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.core.json_differences import EQUAL, Rule, compare
from fepflow.checks.core.sentences import MOST_DIFFERENCES, ResolvedArguments, first_errors
from fepflow.errors import CheckArgumentsError, JSONPathError
from fepflow.json.values import parse
from fepflow.jsonpath.path import outside_quotes
from fepflow.jsonpath.queries import Rfc9535Path
from fepflow.text import plural

Tolerance = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


class FieldRule(TypedDict, total=False):
    """Options for fields that need not be equal."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]  # pydantic's way to close a TypedDict

    tolerance: Annotated[Tolerance, Field(description="Largest difference of two numbers.")]
    percent: Annotated[Tolerance, Field(description="Largest difference, in percent of the expected number.")]
    order: Annotated[StrictBool, Field(description="Whether the order of a list matters.")]


def _compiled(path: str) -> Rfc9535Path:
    """Return the path of a rule, which may leave out `$`. Raises ValueError."""
    text = path if path.startswith("$") else f"${'' if path.startswith('[') else '.'}{path}"
    if "?" in outside_quotes(text):
        raise ValueError("only names, indices, slices, * and .. can be used here")
    try:
        return Rfc9535Path(text)
    except JSONPathError as error:
        raise ValueError(str(error)) from None


def _checked_path(path: str) -> str:
    _compiled(path)
    return path


FieldPath = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_checked_path)]
_WORDS = {"equal": EQUAL, "ignore": Rule(ignore=True), "unordered": Rule(order=False)}


class JSONDiffCheck(BaseCheck):
    """Pass if two JSON values agree, field by field. Results:
    `{score: number, passed: bool, fields: int, differing: list}`.

    A field is a value that contains no other one. The score is the share of the fields of both values that agree. By
    default all must agree. `differing` lists the first 20 fields that differ. A text is read as JSON if the expected
    value is JSON, and fails if it is not JSON. Values are compared as JSON: `1` equals `1.0` but not `true`.

    `rules` allow differences, by path: `equal`, `ignore`, `unordered` (a list in any order), or
    `{tolerance: 0.01, percent: 5, order: false}`. A path consists of names, indices, slices, `*` and `..`. A rule
    applies to everything below its path that has no rule of its own: `{$: ignore, $.total: equal}` compares one field.
    If two rules match the same field, the last one counts. If no field is left, the check ends in an error.

    In a list in any order, elements that differ in a compared field are paired so that most of their fields agree. With
    more than 40,000 possible pairs (200 elements in each of two lists), the check ends in an error.
    """

    check_type: ClassVar[str] = "json_diff"
    check_range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    check_pass_at: ClassVar[float | None] = 1.0

    actual: Any = Field(default=JSONPath("$.output.value"), description="Value to check; a text is read as JSON.")
    expected: Any = Field(
        default=JSONPath("$.test_case.expected"), description="Value to compare with; a text may be JSON."
    )
    rules: dict[FieldPath, Literal["equal", "ignore", "unordered"] | FieldRule] | JSONPath = Field(
        default={}, description="Rules of comparison, by path: `{$.total: {tolerance: 0.01}, $.id: ignore}`."
    )

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        expected = _expected(self.expected)
        actual = self.actual
        if isinstance(actual, str) and not isinstance(expected, str):
            try:
                actual = parse(actual)
            except ValueError as error:
                return {"score": 0.0, "fields": 0, "differing": [f"$ is not valid JSON: {error}"]}
        assert isinstance(self.rules, dict)
        rules = [(_compiled(path), _rule(rule)) for path, rule in self.rules.items()]
        comparison = compare(actual, expected, rules)
        if not comparison.fields:
            raise CheckArgumentsError("the rules ignore every field, so there is nothing to compare")
        score = (comparison.fields - comparison.differing) / comparison.fields
        return {"score": score, "fields": comparison.fields, "differing": comparison.differences}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        differences = results["differing"]
        fields = results["fields"]
        if not fields:
            return first_errors([differences[0].removeprefix("$ ")], resolved["actual"])
        differing = round(fields * (1 - results["score"]))
        counted = f" ({differing} of {plural(fields, 'field')} differ)" if fields > 1 else ""
        more = "; and more" * (len(differences) > MOST_DIFFERENCES)
        return "; ".join(differences[:MOST_DIFFERENCES]) + more + counted


def _expected(value: Any) -> Any:
    """Return the expected value; of a text that is an object or a list in JSON, that."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return parse(value)
    except ValueError as error:
        raise CheckArgumentsError(f"expected begins like JSON, but is not valid JSON: {error}") from None


def _rule(rule: str | FieldRule) -> Rule:
    return _WORDS[rule] if isinstance(rule, str) else Rule(**dict(rule))  # type: ignore[arg-type]  # its members are those of a FieldRule
