import re

import pytest

from fepflow.suite.values import AGGREGATE_PATTERN, Aggregate, parse_aggregate

AGGREGATES = [
    ("mean", Aggregate("mean")),
    ("rate", Aggregate("rate")),
    ("error_rate", Aggregate("error_rate")),
    ("majority", Aggregate("majority")),
    ("worst", Aggregate("worst")),
    ("median", Aggregate("quantile", level=0.5)),
    ("p95", Aggregate("quantile", level=0.95)),
    ("p99.9", Aggregate("quantile", level=0.999)),
    ("p5", Aggregate("quantile", level=0.05)),
    ("pass@1", Aggregate("pass_at_k", k=1)),
    ("pass@10", Aggregate("pass_at_k", k=10)),
    ("pass^3", Aggregate("pass_hat_k", k=3)),
]


def test_aggregates_are_written_as_the_field_writes_them() -> None:
    for text, aggregate in AGGREGATES:
        assert parse_aggregate(text) == aggregate
        assert re.search(AGGREGATE_PATTERN, text)


OTHERS = ["", "Mean", "avg", "p100", "p0", "p00.0", "p", "p-5", "p९५", "pass@0", "pass@", "pass3", "pass^x", "mean "]


def test_other_names_are_refused() -> None:
    for text in OTHERS:
        with pytest.raises(ValueError, match="must be mean, rate"):
            parse_aggregate(text)
