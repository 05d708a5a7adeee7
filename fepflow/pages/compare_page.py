"""The page of runs beside a base: a forest plot of differences, and the cases grouped by what changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from markupsafe import Markup

from fepflow.analysis.comparison import Flip, RunComparison
from fepflow.analysis.preferences import AnsweredQuestion, BlindComparison
from fepflow.analysis.regressions import JudgedComparisons
from fepflow.analysis.variants import VariantDifference, judge_variants
from fepflow.errors import UserError
from fepflow.page_links import compare_path, run_path
from fepflow.pages.charts import forest_chart
from fepflow.pages.rendering import number
from fepflow.reports.comparison import HEADLINES, ComparedRun, compared_runs, flip_texts, output_texts
from fepflow.services.comparisons import compare
from fepflow.store.records import RunRecord, StoredOutput
from fepflow.store.store import Store
from fepflow.text import listed

MAX_RUNS = 10
MOST_SHOWN = 20
"""Cases of a group that are shown with their outputs."""
MOST_CASES = 20_000
"""Cases whose outputs are compared."""

Kind = Literal["worse", "better", "judging", "error", "output", "edited"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FLIPPED: tuple[Kind, ...] = ("worse", "better", "judging")
TITLES: dict[Kind, str] = {
    "worse": "Worse now",
    "better": "Better now",
    "judging": "The same output, judged otherwise",
    "error": "In error in one of the runs",
    "output": "Another output, the same results",
    "edited": "Not compared",
}


@dataclass(frozen=True, slots=True)
class ChangedCase:
    """A case that changed, with both outputs and, if a check flipped, why it did not pass."""

    case_id: str
    flips: Sequence[Flip]
    base: str
    new: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Cases in which the same thing changed, `shown` of `total`."""

    title: str
    total: int
    shown: Sequence[ChangedCase]


@dataclass(frozen=True, slots=True)
class Changes:
    """The cases of two runs by what changed: how many there are of each kind, and the groups of the kind shown.

    `is_whole` is false where the runs have too many cases for their outputs to be compared.
    """

    counts: dict[Kind, int]
    show: Kind
    groups: Sequence[ChangeGroup]
    is_whole: bool = True
    edited: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Runs beside a base, the headline of all of them, and their forest plots.

    With one new run also its changes, and what people and judges prefer.
    """

    judged: JudgedComparisons
    headline: str
    compared: list[ComparedRun]
    forests: Sequence[Markup]
    changes: Changes | None
    questions: Sequence[AnsweredQuestion] = field(default_factory=tuple)


def comparison_view(store: Store, base: str, new: Sequence[str], runs: Sequence[str], show: str = "") -> ComparisonView:
    """Compare runs with a base; of `runs` the oldest is the base. Raises NotFoundError, UserError."""
    if runs:
        oldest, *others = sorted((store.runs.get(name) for name in runs), key=lambda run: run.created_at)
        base, new = oldest.id, [run.id for run in others]
    if not base or not new:
        raise UserError("A comparison needs two runs: tick them in the list of runs.")
    if len(new) > MAX_RUNS:
        raise UserError(f"At most {MAX_RUNS} runs are compared with a base on one page.")
    judged = compare(store, base, new, None, {})
    several = len(judged.comparisons) > 1
    # The page of two runs has the cases by what changed instead.
    compared = list(compared_runs(store, judged, MOST_SHOWN if several else 0))
    differences = judge_variants(judged.comparisons, judged.comparisons[0].gate)
    forests = forest_plots(differences, several=several)
    if several:
        return ComparisonView(judged, HEADLINES[judged.outcome], compared, forests, None)
    comparison = compared[0].comparison
    asked: Sequence[AnsweredQuestion] = ()
    if store.preferences.count():
        asked = BlindComparison(store, comparison.base, comparison.new).questions()
    return ComparisonView(
        judged, HEADLINES[judged.outcome], compared, forests, changes_of(store, compared[0], show), asked
    )


def forest_plots(differences: Sequence[VariantDifference], *, several: bool, labels: bool = False) -> list[Markup]:
    """Draw the differences from the base: those of shares in one picture, each other metric in one of its own."""
    rows = defaultdict(list)
    for difference in differences:
        estimate = difference.estimate
        if estimate is None or estimate.value is None:
            continue
        name = difference.metric.id
        if several:
            run = difference.run.variant if labels else None
            name = f"{name}: {', '.join(map(str, run.values())) if run else difference.run.id[:8]}"
        bounds = f"{number(estimate.low)} to {number(estimate.high)}"
        rows["" if difference.metric.is_share else difference.metric.id].append(
            {
                "label": f"{name} ({difference.way})" if difference.way else name,  # a word stands beside every colour
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "way": difference.way,
                "hint": f"{name}: {number(estimate.value)} ({bounds}), {difference.way or 'no difference shown'}",
                "href": run_path(difference.run.id),
            }
        )
    return [chart for group in rows.values() if (chart := forest_chart(group)) is not None]


def changes_of(store: Store, compared: ComparedRun, show: str) -> Changes:
    """Group the cases of two runs by what changed."""
    comparison = compared.comparison
    flipped: dict[Kind, dict[str, list[Flip]]] = {kind: defaultdict(list) for kind in FLIPPED}
    ways: tuple[tuple[Kind, Sequence[Flip]], ...] = (("worse", comparison.worsened), ("better", comparison.improved))
    for way, flips in ways:
        for flip in flips:
            flipped["judging" if flip.same_output else way][flip.case_id].append(flip)
    is_whole = max(comparison.base.n_cases, comparison.new.n_cases) <= MOST_CASES
    errors, others = _outputs_changed(store, comparison, flipped) if is_whole else ([], [])
    matched = comparison.matched
    edited = [
        (title, ids)
        for title, ids in (
            ("Edited since", matched.changed),
            ("Only in the base", matched.only_base),
            ("Only in the new run", matched.only_new),
        )
        if ids
    ]
    counts: dict[Kind, int] = {
        "worse": len(flipped["worse"]),
        "better": len(flipped["better"]),
        "judging": len(flipped["judging"]),
        "error": len(errors),
        "output": len(others),
        "edited": sum(len(ids) for _, ids in edited),
    }
    wanted: Kind = next((kind for kind in KINDS if kind == show or (not show and counts[kind])), "worse")
    groups: list[ChangeGroup] = []
    if wanted in FLIPPED:
        groups = _flip_groups(store, compared, flipped[wanted])
    elif wanted in ("error", "output"):
        pairs = errors if wanted == "error" else others
        groups = [ChangeGroup(TITLES[wanted], len(pairs), _shown(store, comparison, pairs))] if pairs else []
    return Changes(counts, wanted, groups, is_whole, edited)


_Pair = tuple[str, int, int]
"""A case's id, and its indices in both runs."""


def _outputs_changed(
    store: Store, comparison: RunComparison, flipped: Mapping[Kind, Mapping[str, list[Flip]]]
) -> tuple[list[_Pair], list[_Pair]]:
    """Return the cases that are in error in one run only, and those with other outputs that did not flip."""
    base, new = (_by_case(store, run) for run in (comparison.base, comparison.new))
    ids = list(store.runs.ids_of_cases(comparison.new.id))
    errors, others = [], []
    for then, now in comparison.matched.pairs:
        pair = ids[now], then, now
        before, after = base.get(then, []), new.get(now, [])
        if any(output.failed for output in before) != any(output.failed for output in after):
            errors.append(pair)
        elif any(pair[0] in cases for cases in flipped.values()):
            continue
        elif (differ := _differ(before, after)) or (differ is None and _differ(*_whole(store, comparison, pair))):
            others.append(pair)
    return errors, others


def _differ(before: Sequence[StoredOutput], after: Sequence[StoredOutput]) -> bool | None:
    """Return whether outputs have other values; None if that takes reading their blobs."""
    if len(before) != len(after):
        return True
    is_known = True
    for one, other in zip(before, after, strict=True):
        have_blobs = [output.blob is not None for output in (one, other)]
        if one.output.value != other.output.value and have_blobs[0] is have_blobs[1]:
            return True
        is_known = is_known and one.blob == other.blob
    return False if is_known else None


def _whole(store: Store, comparison: RunComparison, pair: _Pair) -> tuple[list[StoredOutput], list[StoredOutput]]:
    """Return the outputs of a case in both runs, with their blobs."""
    _, then, now = pair
    read = store.results.outputs_at
    before, after = read(comparison.base.id, [then]), read(comparison.new.id, [now])
    return [before[unit] for unit in sorted(before)], [after[unit] for unit in sorted(after)]


def _by_case(store: Store, run: RunRecord) -> dict[int, list[StoredOutput]]:
    by_case: dict[int, list[StoredOutput]] = defaultdict(list)
    for (case_index, _), stored in sorted(store.results.outputs(run.id, whole=False).items()):
        by_case[case_index].append(stored)
    return by_case


def _flip_groups(store: Store, compared: ComparedRun, flipped: dict[str, list[Flip]]) -> list[ChangeGroup]:
    """Return the cases by the metrics that flipped together, the largest group first."""
    by_metrics: dict[tuple[str, ...], list[list[Flip]]] = defaultdict(list)
    for flips in flipped.values():
        by_metrics[tuple(sorted(flip.metric for flip in flips))].append(flips)
    groups = []
    for metrics, cases in sorted(by_metrics.items(), key=lambda item: -len(item[1])):
        texts = flip_texts(store, compared.comparison, [flips[0] for flips in cases[:MOST_SHOWN]])
        shown = [
            ChangedCase(text.flip.case_id, flips, text.base, text.new, text.reason)
            for flips, text in zip(cases, texts, strict=False)
        ]
        groups.append(ChangeGroup(listed(list(metrics)), len(cases), shown))
    return groups


def _shown(store: Store, comparison: RunComparison, pairs: Sequence[_Pair]) -> list[ChangedCase]:
    shown = pairs[:MOST_SHOWN]
    before = output_texts(store, comparison.base.id, [then for _, then, _ in shown])
    after = output_texts(store, comparison.new.id, [now for _, _, now in shown])
    return [
        ChangedCase(case_id, (), base, new) for (case_id, _, _), base, new in zip(shown, before, after, strict=True)
    ]


def changes_path(comparison: RunComparison, kind: Kind) -> str:
    """Return the path of the page with the cases of this kind."""
    return f"{compare_path(comparison.base.id, comparison.new.id)}&show={kind}#changes"
