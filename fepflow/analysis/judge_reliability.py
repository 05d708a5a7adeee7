"""The reliability of a run's judges: agreement with labels and of samples, and metrics corrected for their errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fepflow.checks.registry import JUDGES, LABELLED, CheckType
from fepflow.protocol.check import Check
from fepflow.statistics.judges import Design, JudgeLabels, corrected, doubt_of_labels, youden_index
from fepflow.statistics.means import Sums
from fepflow.store.records import Calibration, RunRecord
from fepflow.store.result_rows import shared_check_ids
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.text import listed, number, percent, plural

if TYPE_CHECKING:
    from fepflow.analysis.accumulation import MetricAccumulator
    from fepflow.checks.models.judge_spec import JudgeSpec
    from fepflow.verdict.verdict import MetricEstimate

ENOUGH = 0.6
"""Below it a judge's verdicts are not those of people: "substantial" agreement begins there (Landis and Koch 1977).

Of yes and no it is Youden's J that has to reach it, which is what kappa is where half of the labels are yes; with fewer
of a kind the same judge has a smaller kappa. Of scales and words it is kappa.
"""

DESIGNS: dict[Design, str] = {
    "all": "of all judged outputs",
    "by_verdict": "drawn by verdict",
    "random": "drawn at random",
    "by_hand": "picked by hand",
    "disputed": "with the disputed first",
}
"""Words for the way in which labelled outputs were chosen, after their number."""

_CORRECT = "so the labels correct this run"
_CORRECT_NOTHING = "so the labels do not correct this run; those of a draw (--sample 100) do"
CHOSEN: dict[Design, str] = {
    "all": f"All judged outputs are labelled, {_CORRECT}",
    "by_verdict": f"The outputs were drawn from those that the judge passed and from those that it failed, {_CORRECT}",
    "random": f"The outputs were drawn at random, {_CORRECT}",
    "by_hand": f"The outputs were picked by hand, {_CORRECT_NOTHING}",
    "disputed": f"The most disputed outputs came first, {_CORRECT_NOTHING}",
}
"""The same as a sentence, with what follows from it."""

FIRST_OUTPUTS = 100
"""Test cases of which the outputs may name the agent's model."""

FEW_LABELS = 30
FEW_OF_A_KIND = 10


@dataclass(frozen=True)
class JudgeReliability:
    """The reliability of one judge in one run. `judge` is None for one that test cases declare themselves.

    Of `answers` that were made of several samples, or by a jury, `disputed` were not unanimous; `agreement` is the mean
    share of them that agree, None where there was only one.
    """

    check_id: str
    judge: JudgeSpec | None
    calibration: Calibration | None
    answers: int = 0
    disputed: int = 0
    agreement: float | None = None

    def data(self) -> dict[str, Any]:
        """Return the same as JSON."""
        return {
            "check": self.check_id,
            "model": self.judge.model if self.judge else None,
            "samples": self.judge.samples if self.judge else None,
            "agreement": self.agreement,
            "disputed": self.disputed,
            "calibration": calibration_data(self.calibration) if self.calibration else None,
        }

    def sentence(self) -> str:
        """Return the same on one line."""
        who = f"{self.check_id} ({self.judge.model})" if self.judge else self.check_id
        sentences = [
            f"{'jury' if self.judge and self.judge.is_jury else 'judge'} {who}: {calibration_words(self.calibration)}"
        ]
        if self.agreement is not None:
            voters = "judges" if self.judge is not None and self.judge.is_jury else "samples"
            sentences.append(
                f"its {voters} agree to {self.agreement:.2f}, "
                f"{self.disputed} of {plural(self.answers, 'verdict')} disputed"
            )
        return "; ".join(sentences)


def reliability_of_judges(store: Store, run: RunRecord, *, all_recorded: bool = False) -> list[JudgeReliability]:
    """Return the reliability of each judge of a run as known now: judges may be calibrated after the run.

    Of imported scorers those that were compared with people, unless `all_recorded`: most of them are not models.
    """
    judges = judges_of_run(run)
    known = {judge.check_id for judge in judges}
    of_cases = sorted(store.results.checks_of_types(run.id, JUDGES) - known)
    reliabilities = [(judge, _reliability(store, run, judge)) for judge in judges]
    return [
        *(
            reliability
            for judge, reliability in reliabilities
            if all_recorded or reliability.calibration or not judge.is_recorded
        ),
        *(JudgeReliability(check_id, None, None) for check_id in of_cases),
    ]


def judges_of_run(run: RunRecord) -> list[JudgeSpec]:
    """Return the judges that all cases of a run share, as they were when it was planned, and the scorers of imported
    runs."""
    types = [check.get("type") if isinstance(check, dict) else None for check in run.suite.get("checks") or ()]
    if not any(check_type in LABELLED for check_type in types):
        return []
    from fepflow.checks.models.judge_spec import judges_of_suite, recorded_judge
    from fepflow.suite.reader import read_snapshot

    is_judged = any(check_type in JUDGES for check_type in types)
    judges = judges_of_suite(read_snapshot(run.suite, run.suite_path, run.name)) if is_judged else []
    tool = ((run.suite.get("target") or {}).get("imported") or {}).get("format", "another tool")
    ids = zip(shared_check_ids(run.suite), types, strict=False)  # behind those of `checks` are ids of other sections
    recorded = [check_id for check_id, check_type in ids if check_type == CheckType.RECORDED_SCORE]
    return [*judges, *(recorded_judge(check_id, run.id, tool) for check_id in recorded)]


def warnings_of_own_model(store: Store, run: RunRecord) -> dict[str, str]:
    """Return a warning for each judge, by its check, that is the agent's own model.

    The agent's is known from its first outputs' metadata (`model`), or from the body of an HTTP target's requests.
    """
    judges = judges_of_run(run)
    if not judges:
        return {}
    body = ((run.suite.get("target") or {}).get("http") or {}).get("body")
    outputs = store.results.outputs(run.id, 0, FIRST_OUTPUTS, whole=False).values()
    model_names = [(stored.output.metadata or {}).get("model") for stored in outputs]
    model_names.append(body.get("model") if isinstance(body, dict) else None)
    models = sorted({model for model in model_names if isinstance(model, str)})
    return {judge.check_id: f"{warning}." for judge in judges for model in models if (warning := judge.favours(model))}


def calibrated_since(store: Store, run: RunRecord) -> bool:
    """Return whether a judge of an ended run was calibrated after its verdict."""
    return run.completed_at is not None and any(
        calibration.created_at > run.completed_at
        for judge in judges_of_run(run)
        for calibration in store.labels.calibrations_of(judge.judge, judge.rubric)
    )


def _reliability(store: Store, run: RunRecord, judge: JudgeSpec) -> JudgeReliability:
    calibration = store.labels.calibration_of(judge.judge, judge.rubric)
    if judge.samples == 1 and not judge.is_jury:
        return JudgeReliability(judge.check_id, judge, calibration)
    shares = [share for share in _shares(store, run, judge) if share is not None]
    mean = sum(shares) / len(shares) if shares else None
    return JudgeReliability(judge.check_id, judge, calibration, len(shares), sum(share < 1 for share in shares), mean)


def _shares(store: Store, run: RunRecord, judge: JudgeSpec) -> Iterator[float | None]:
    """Yield for each answer the share of samples, or of a jury, that agree: on `passed`, else on the field that agrees
    least.
    """
    voting = "jury" if judge.is_jury else "samples"
    for _, results in store.results.completed_results(run.id, judge.check_id):
        agreement = results["metadata"].get(voting, {}).get("agreement", {})
        yield agreement.get("passed", min(agreement.values(), default=None))


def calibration_data(calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as JSON."""
    return {
        "id": calibration.id,
        "created_at": calibration.created_at.isoformat().replace("+00:00", "Z"),
        "run_id": calibration.run_id,
        "check": calibration.check_id,
        "member": calibration.field,
        "model": calibration.model,
        "parameters": calibration.parameters,
        "judge": calibration.judge,
        "rubric": calibration.rubric,
        "n": calibration.n,
        "missing": calibration.missing,
        **calibration.statistics,
        **({"youden_j": j} if (j := youden_of(calibration)) else {}),
        "warnings": warnings_of(calibration),
    }


def calibration_words(calibration: Calibration | None) -> str:
    """Return how far a judge agrees with people, as a part of a sentence."""
    if calibration is None:
        return "not calibrated"
    kappa, youden = calibration.statistics["kappa"], youden_of(calibration)
    size = f"n = {calibration.n} {DESIGNS[design_of(calibration)]}, {calibration.created_at:%Y-%m-%d}"
    of = "" if calibration.field == "passed" else f" of {calibration.field}"
    if kappa["value"] is None:
        return f"calibrated without a kappa{of} ({kappa['why']}; {size})"
    if youden is None:
        words, name, figure = f"kappa{of} {number(kappa['value'])} with people ({_interval(kappa)}, {size})", "", kappa
    else:
        tpr, tnr = (number(calibration.statistics[rate]["value"]) for rate in ("tpr", "tnr"))
        rates = f"TPR {tpr} and TNR {tnr}{of} by people's labels ({size})"
        words = f"{rates}, J {number(youden['value'])} ({_interval(youden)}), kappa {number(kappa['value'])}"
        name, figure = "J ", youden
    if figure["value"] < ENOUGH:
        return f"{words}, {name}below {ENOUGH}: not to be relied on"
    return f"{words}, {name}may be below {ENOUGH}" if figure["low"] < ENOUGH else words


def _interval(figure: dict[str, Any]) -> str:
    return f"95 % interval {number(figure['low'])} to {number(figure['high'])}"


def warnings_of(calibration: Calibration) -> list[str]:
    """Return warnings about a judge's agreement with people, and about the size of its calibration."""
    return [*_warnings_of_agreement(calibration), *_warnings_of_size(calibration)]


def _warnings_of_agreement(calibration: Calibration) -> Iterator[str]:
    kappa, youden, n = calibration.statistics["kappa"], youden_of(calibration), calibration.n
    figure, name = (kappa, "kappa") if youden is None else (youden, "J")
    value, low, high = figure["value"], figure["low"], figure["high"]
    if value is None:
        yield f"kappa is not defined: {kappa['why']}. Label cases of both kinds."
    elif value < ENOUGH:
        unsure = f", though with n = {n} it may be {number(high)}" if high >= ENOUGH else ""
        otherwise = "it judges otherwise than people"
        if youden is not None:
            tpr, tnr = (percent(round(1 - calibration.statistics[rate]["value"], 2)) for rate in ("tpr", "tnr"))
            otherwise = f"it passes {tnr} of what people fail, and fails {tpr} of what they pass"
        yield f"{name} is below {ENOUGH}: {otherwise}{unsure}. Change its prompt or model."
    elif low < ENOUGH:
        yield f"{name}'s interval reaches below {ENOUGH}: n = {n} labels are too few to tell. Label more cases."


def design_of(calibration: Calibration) -> Design:
    """Return the way in which the labelled outputs were chosen."""
    design: Design = calibration.statistics["design"]
    return design


def labels_of(calibration: Calibration, *, of_run: bool = False) -> JudgeLabels:
    """Return the counts of a calibration of yes and no; of a draw, if there was one. `of_run` if they are the run's
    own.

    Labels of clusters count for what they are worth: of the run's own in each part that the judge passed or failed.
    """
    draw = calibration.statistics.get("draw", {})
    (right_passed, right_failed), (wrong_passed, wrong_failed) = draw.get("matrix") or calibration.statistics["matrix"]
    if clusters := calibration.statistics.get("clusters"):
        worth = clusters["worth"]
        of_all = min(worth["right"], worth["wrong"])
        passed, failed = (worth["passed"], worth["failed"]) if of_run else (of_all, of_all)
        right_passed, wrong_passed = right_passed * passed, wrong_passed * passed
        right_failed, wrong_failed = right_failed * failed, wrong_failed * failed
    return JudgeLabels(
        right_passed + right_failed, right_passed, wrong_passed + wrong_failed, wrong_failed, design_of(calibration),
        of_run, draw.get("share"),
    )  # fmt: skip


def youden_of(calibration: Calibration) -> dict[str, float] | None:
    """Return Youden's J with its interval; None for other values than yes and no, or if all labels are the same."""
    index = youden_index(labels_of(calibration)) if "tpr" in calibration.statistics else None
    return None if index is None else dict(zip(("value", "low", "high"), index, strict=True))


def _warnings_of_size(calibration: Calibration) -> Iterator[str]:
    if calibration.n < FEW_LABELS:
        yield f"n = {calibration.n} is small: figures of fewer than {FEW_LABELS} labels say little."
    few = [
        f"{name.upper()} rests on {plural(rate['n'], 'case')} that should {word}"
        for name, word in (("tpr", "pass"), ("tnr", "fail"))
        if (rate := calibration.statistics.get(name)) and rate["n"] < FEW_OF_A_KIND
    ]
    if few:
        yield f"{listed(few)}."
    if clusters := calibration.statistics.get("clusters"):
        worth = round(labels_of(calibration, of_run=True).n)
        if worth < calibration.n:
            documents = f"the labels are of {plural(clusters['n'], 'cluster')}"
            yield f"{calibration.n} labels tell as much as about {worth} independent ones: {documents}."
    if why := calibration.statistics.get("no_draw"):
        yield why
    if undecided := calibration.statistics.get("people", {}).get("undecided"):
        have = "output has" if undecided == 1 else "outputs have"
        yield f"{undecided} {have} no label that more than half of its people gave, and no label that counts."
    if calibration.missing:
        cases = plural(calibration.missing, "labelled case")
        yield f"{cases} without a verdict: the judge, or the call before it, gave none."


FIELD = "passed"
NOTHING_JUDGED = "the judge has judged nothing, so there is nothing to correct"


@dataclass(frozen=True, slots=True)
class KnownLabels:
    """People's labels of a metric's judge. `doubt` says why they cannot correct it, as a part of a sentence."""

    labels: JudgeLabels
    doubt: str | None = None


LabelsByMetric = Mapping[str, KnownLabels | None]
"""The labels for each metric that is a share which a judge passed; None if there are none."""


def labels_by_metric(
    store: Store, run: RunRecord, accumulators: Sequence[MetricAccumulator], declared: Mapping[str, Sequence[Check]]
) -> LabelsByMetric:
    """Return people's labels for each metric of a run that a judge decides. `declared` are the checks of each id.

    Judges that test cases carry are not calibrated.
    """
    from fepflow.analysis.accumulation import is_share_that_passed  # `show` computes no verdict

    types = {
        accumulator.metric.id: {check.type for check in declared.get(accumulator.metric.check or "", ())}
        for accumulator in accumulators
    }
    labelled = [
        accumulator
        for accumulator in accumulators
        if is_share_that_passed(accumulator.metric) and types[accumulator.metric.id].intersection(LABELLED)
    ]
    labels = labels_of_judges(store, run) if labelled else {}
    return {
        accumulator.metric.id: _known(run, accumulator, labels.get(accumulator.metric.check or ""))
        for accumulator in labelled
        # A scorer of another tool may be a model or not: it is doubted once there are labels.
        if types[accumulator.metric.id].intersection(JUDGES) or accumulator.metric.check in labels
    }


def _known(run: RunRecord, accumulator: MetricAccumulator, labels: JudgeLabels | None) -> KnownLabels | None:
    if labels is None:
        return None
    raw = accumulator.estimate(Gate()).estimate
    sums, doubt = raw.sample, None
    if isinstance(sums, Sums):
        doubt = doubt_of_labels(labels, sums.share, sums.effective(raw.confidence))
    advice = f"(`fepflow calibrate SUITE --run {run.id[:8]} --sample 100 --labels FILE` draws outputs to label)"
    return KnownLabels(labels, f"{doubt} {advice}" if doubt else None)


def with_correction(metric: MetricEstimate, labels: LabelsByMetric, *, of_part: bool = False) -> MetricEstimate:
    """Return the metric, corrected for the errors of its judge as far as they are known.

    `of_part` if it is over a part of the run's cases. A draw from the whole run is not a random sample of a part: its
    labels tell the judge's rates only.
    """
    if metric.id not in labels:
        return metric
    known = labels[metric.id]
    if known is None or known.doubt is not None:
        return replace(metric, by_judge=True, doubt=known.doubt if known else None)
    counts = replace(known.labels, of_run=False) if of_part else known.labels
    estimate = corrected(metric.estimate, counts)
    return replace(metric, by_judge=True, corrected=estimate, doubt=None if estimate else NOTHING_JUDGED)


def labels_of_judges(store: Store, run: RunRecord) -> dict[str, JudgeLabels]:
    """Return people's labels by check: a sample of this run, or else the newest that can tell most."""
    labels = {}
    for judge in judges_of_run(run):
        candidates = [
            labels_of(calibration, of_run=calibration.run_id == run.id)
            for calibration in store.labels.calibrations_of(judge.judge, judge.rubric)
            if calibration.field == FIELD
        ]
        if candidates:
            labels[judge.check_id] = max(candidates, key=_rank)  # of equal ones the first, which is the newest
    return labels


def _rank(labels: JudgeLabels) -> int:
    if labels.is_sample_of_run:
        return 3
    if labels.of_run or labels.design == "disputed":
        return 0
    return 2 if labels.design in ("by_verdict", "random") else 1
