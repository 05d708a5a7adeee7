from fepflow.evalguard.models import Range, Thresholds, thresholds_digest
from fepflow.verdict.gate import decide

LOW, SEVERE = Range(impact="low", min=1), Range(impact="severe", max=1)
FINE = Range(impact="low", min=1, interpretation="fine")
QA = Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f1": [LOW]})
OTHER = Thresholds(task="other", thresholds={})


def test_the_order_of_tasks_metrics_and_ranges_does_not_matter_and_neither_does_1_or_1_0():
    same = Thresholds(task="qa", thresholds={"f1": [LOW], "acc": [SEVERE, Range(impact="low", min=1.0)]})
    assert thresholds_digest([QA, OTHER]) == thresholds_digest([OTHER, same])
    assert len(thresholds_digest([QA])) == 64


def test_whatever_they_say_matters():
    others = [
        [],
        [QA, OTHER],
        [QA.model_copy(update={"task": "qb"})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE]})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f2": [LOW]})],
        [Thresholds(task="qa", thresholds={"acc": [SEVERE], "f1": [LOW]})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f1": [Range(impact="low", max=1)]})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f1": [FINE]})],
    ]  # fmt: skip
    assert len({thresholds_digest(each) for each in [[QA], *others]}) == len(others) + 1


def test_a_verdict_has_the_digest_of_its_thresholds():
    assert decide([], None, QA, []).thresholds_digest == thresholds_digest([QA])
    assert decide([], None, None, []).thresholds_digest is None
