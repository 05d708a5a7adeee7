"""Whatever a run lacks, its verdict is one that holds: no completion of the data could have turned a pass or a fail.

Suites, results, errors, absences and gates are random; the results are in a real store, and judged as those of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from fepflow.analysis.metrics import compute_verdict
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Suite
from fepflow.verdict.verdict import Verdict

Cell = tuple[int, int, str]
"""Case index, repeat, check id."""

Answer = dict[str, Any]
"""What a check gave: its results, or {"status": ...} if none."""

SHARED = ("right", "polite", "graded")
OWN = "own"
IMPACTS = [
    {"impact": "severe", "max": 0.5},
    {"impact": "moderate", "min": 0.5, "max": 0.8},
    {"impact": "low", "min": 0.8},
]
NUMBERS = count()


@dataclass(frozen=True)
class World:
    """A suite, and for each cell what its check would give, and whether that came."""

    suite: Suite
    own: frozenset[int]
    cases: int
    repeats: int
    truth: dict[Cell, Answer]
    came: dict[Cell, Answer | None]


def answers(check: str) -> st.SearchStrategy[Answer]:
    """`graded` only scores; the score of `polite` has no known range."""
    score = st.sampled_from([0.0, 0.4, 0.9, 0.97, 1.0]) | st.floats(0, 1)
    if check == "graded":
        return st.fixed_dictionaries({"score": score})
    unbounded = score | st.floats(-1e308, 1e308, allow_nan=False)
    passed = st.sampled_from([True, True, True, True, False])
    return st.fixed_dictionaries({"passed": passed, "score": unbounded if check == "polite" else score})


@st.composite
def suites(draw: st.DrawFn, checks: list[str], repeats: int) -> dict[str, Any]:
    """Sections of a suite: metrics, thresholds and gate."""
    sections: dict[str, Any] = {}
    metrics: list[dict[str, Any]] = [{"id": check, "check": check} for check in checks]
    if draw(st.booleans()):
        metrics += [{"id": "share", "check": checks[0]}, {"id": "loose", "check": "polite", "value": "$.score"}]
        metrics.append({"id": "score", "check": "graded", "value": "$.score", "range": draw(RANGES)})
        metrics = [metric for metric in metrics if metric["check"] in checks and draw(st.booleans())] or metrics[:1]
        for metric in metrics:
            kinds = ["mean", *(OF_SCORES if "value" in metric else [*OF_PASSES, f"pass@{repeats}", f"pass^{repeats}"])]
            metric["aggregate"] = draw(st.sampled_from(kinds))
            if metric["aggregate"] == "rate" and "value" in metric:
                metric["at_least"] = 0.9
        sections["metrics"] = metrics
    names = [metric["id"] for metric in metrics]
    if draw(st.booleans()):
        sections["thresholds"] = {"task": "t", "thresholds": {draw(st.sampled_from(names)): IMPACTS}}
    minima = st.dictionaries(st.sampled_from(names), st.sampled_from([-2.0, 0.0, 0.3, 0.5, 0.7, 0.8, 0.95]), max_size=3)
    gate = {
        "min": draw(minima),
        "max": draw(st.dictionaries(st.sampled_from(names), st.sampled_from([0.0, 0.1, 0.9, 1.0]), max_size=1)),
        "checks": draw(st.sampled_from([None, None, "all"])),
        "fail": draw(st.sampled_from(["interval", "interval", "value"])),
        "verdict": draw(st.sampled_from(["interval", "interval", "point"])),
        "interval": draw(st.sampled_from(["wilson", "wilson", "clopper-pearson"])),
        "confidence": draw(st.sampled_from([0.6, 0.8, 0.95])),
    }
    if "thresholds" in sections:
        gate["max_impact"] = draw(st.sampled_from([None, "low", "moderate", "severe"]))
    if draw(st.integers(0, 3)) == 3:
        shares = [metric["id"] for metric in metrics if "value" not in metric]
        minima = st.dictionaries(st.sampled_from(shares), st.sampled_from([0.3, 0.5, 0.8]), max_size=2)
        sections["slices"] = {"by": "parity", "min": draw(minima) if shares else None}
    return sections if draw(st.integers(0, 3)) == 3 else {**sections, "gate": gate}


OF_PASSES = ["rate", "majority", "worst"]
OF_SCORES = ["rate", "worst", "median", "p10", "p90"]
RANGES = st.sampled_from([[0.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [0.0, 5.0]])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    checks = draw(st.lists(st.sampled_from(SHARED), min_size=1, unique=True))
    cases, repeats = draw(st.sampled_from([1, 4, 12, 40])), draw(st.sampled_from([1, 1, 2]))
    own = frozenset(draw(st.sets(st.integers(0, cases - 1), max_size=2)))
    cells = [(n, repeat, check) for n in range(cases) for repeat in range(repeats) for check in checks]
    cells += [(n, repeat, OWN) for n in own for repeat in range(repeats)]
    usual = {check: draw(answers(check)) for check in (*checks, OWN)}
    truth: dict[Cell, Answer] = {cell: usual[cell[2]] for cell in cells}
    for cell in draw(st.lists(st.sampled_from(cells), max_size=6)):
        truth[cell] = draw(answers(cell[2]))
    came: dict[Cell, Answer | None] = dict(truth)
    absences: st.SearchStrategy[Answer | None] = st.sampled_from(
        [None, {"status": "error"}, {"status": "skip"}, {"odd": 1}]
    )
    whole, half = draw(st.sampled_from([None] * 9 + checks)), draw(st.sampled_from([0, 1, None]))
    for cell in cells if whole else ():
        if cell[2] == whole and half in (None, cell[0] % 2):  # all of a slice, or all
            came[cell] = {"status": "error"}
    for cell in draw(st.lists(st.sampled_from(cells), max_size=6)):
        came[cell] = draw(absences)
        if came[cell] and "status" not in came[cell] and cell[2] == "graded":
            came[cell] = None  # a check that never gives a verdict owes none
    document = {
        "name": "s",
        "target": {"http": {"url": "http://127.0.0.1:9/"}},
        "test_cases": [],
        "checks": [{"type": "exact_match", "id": check, "arguments": {}} for check in checks],
        "repeats": repeats,
        **draw(suites(checks, repeats)),
    }
    return World(Suite.model_validate(document), own, cases, repeats, truth, came)


def verdict_of(store: Store, world: World, cells: dict[Cell, Answer | None]) -> Verdict:
    own = {"type": "exact_match", "id": OWN, "arguments": {}}
    cases = [
        TestCase.model_validate(
            {"id": str(n), "input": n, "metadata": {"parity": n % 2}, **({"checks": [own]} if n in world.own else {})}
        )
        for n in range(world.cases)
    ]
    run_id = f"{next(NUMBERS):032x}"
    store.runs.create(RunRecord(id=run_id, name="s", suite={}, repeats=world.repeats), cases)
    outputs = [NewOutput(n, repeat, "a", Output(value="x")) for n, repeat in {cell[:2] for cell in cells}]
    store.results.write(run_id, outputs, [_row(cell, answer) for cell, answer in cells.items() if answer is not None])
    return compute_verdict(store, store.runs.get(run_id), world.suite)


def _row(cell: Cell, answer: Answer) -> NewCheckResult:
    status = answer.get("status", "completed")
    error = CheckError(type="unknown_error", message="away", recoverable=True) if status == "error" else None
    results = {} if "status" in answer else answer
    found = {"check_type": "exact_match", "status": status, "results": results, "evaluated_at": utc_now()}
    result = CheckResult.model_validate(found | ({"error": error} if error else {}))
    return NewCheckResult(*cell, "b", result, results.get("passed"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples."""
    with Store.open(f"sqlite:///{tmp_path_factory.mktemp('store') / 'all.db'}") as opened:
        yield opened


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.data())
@pytest.mark.battery
def test_a_verdict_with_missing_data_is_that_of_every_completion(
    everything: Store, world: World, data: st.DataObject
) -> None:
    verdict = verdict_of(everything, world, world.came)
    missing = list(_missing(world.came))
    event(f"{verdict.outcome}, {'with missing data' if missing else 'complete'}")
    assert verdict.reasons == [rule.reason for rule in verdict.rules]
    assert verdict.rules[0].outcome == verdict.outcome
    if verdict.outcome == "inconclusive" or not missing:
        return
    ends: list[Answer] = [{"passed": False, "score": 0.0}, {"passed": True, "score": 1.0}]
    usual = {cell: world.truth[cell] for cell in missing}
    drawn = {cell: data.draw(answers(cell[2])) for cell in data.draw(st.sets(st.sampled_from(missing), max_size=4))}
    for completion in ({**usual, **drawn}, *(dict.fromkeys(missing, end) for end in ends)):
        whole = verdict_of(
            everything, world, {**world.came, **{cell: _fit(cell, completion[cell]) for cell in missing}}
        )
        assert whole.outcome == verdict.outcome, whole.reasons


def _missing(came: dict[Cell, Answer | None]) -> Iterator[Cell]:
    """What did not come. A result without a verdict is missing only of a check that owes verdicts."""
    owing = {cell[2] for cell, answer in came.items() if answer is None or "passed" in answer or "status" in answer}
    for cell, answer in came.items():
        if answer is None or "status" in answer or ("score" not in answer and cell[2] in owing):
            yield cell


def _fit(cell: Cell, answer: Answer) -> Answer:
    return {"score": answer["score"]} if cell[2] == "graded" else answer
