"""Test cases that belong to clusters: these are what intervals count, however large each is."""

from __future__ import annotations

import math

import pytest

from fepflow.statistics.estimate import PROPORTION, Clusters, Counts, Estimate, Scale, describe
from fepflow.statistics.means import CaseValue, UnitSums, estimate_of_cases, mean_estimate
from fepflow.statistics.paired import difference, paired_estimate
from fepflow.statistics.proportions import wilson_interval
from fepflow.statistics.quantiles import quantile_estimate
from fepflow.statistics.sequential import (
    ClusterSizes,
    Values,
    confidence_sequence,
    is_shown_above,
    log_e_above,
    sequential_estimate,
)


def clustered(values: list[list[float]], *, missing: int = 0, scale: Scale | None = PROPORTION) -> Estimate:
    """The mean of values by cluster, of which so many are missing in the first one."""
    sizes = [len(cluster) + (missing if not index else 0) for index, cluster in enumerate(values)]
    clusters = Clusters.of(sizes, "document")
    return mean_estimate(values, Counts(sum(sizes), sum(map(len, values)), missing, clusters=clusters), scale=scale)


def test_clusters_that_agree_throughout_count_once_each() -> None:
    result = clustered([[1.0] * 10] * 18 + [[0.0] * 10] * 2)
    assert (result.low, result.high) == pytest.approx(wilson_interval(0.9, 20))
    assert (result.value, result.method) == (0.9, "wilson-clustered")


def test_clusters_of_one_size_are_counted_as_cases_with_repeats_are() -> None:
    values = [[1.0] * 8 + [0.0] * (k % 3) + [1.0] * (2 - k % 3) for k in range(30)]
    repeated = mean_estimate(values, Counts(300, 300), scale=PROPORTION)
    assert clustered(values).interval == pytest.approx(repeated.interval)


def test_one_large_cluster_among_small_ones_counts_little_more_than_itself() -> None:
    values = [[1.0] * 100] + [[1.0]] * 20
    worth = 120**2 / (100**2 + 20)
    assert clustered(values).low == pytest.approx(wilson_interval(1.0, worth)[0])


def test_clusters_of_different_sizes_have_the_variance_of_a_ratio() -> None:
    """The standard error of n observations is that of the ratio of sums: of many clusters, as a few more are added."""
    shares, sizes = [0.95, 0.6, 0.8, 0.9] * 2_000, [4, 40, 10, 20] * 2_000
    n = sum(sizes)
    value = math.fsum(share * size for share, size in zip(shares, sizes, strict=True)) / n
    variance = math.fsum((size * (share - value)) ** 2 for share, size in zip(shares, sizes, strict=True)) / n**2
    worth = UnitSums.of(shares, sizes).observations(0.95)
    assert value * (1 - value) / worth == pytest.approx(variance, rel=0.02)


def test_with_results_missing_each_cluster_counts_once() -> None:
    result = clustered([[1.0] * 5] + [[1.0] * 10] * 19, missing=5)
    assert result.low == pytest.approx(wilson_interval(195 / 200, 20)[0])
    assert result.high == 1


def test_scores_of_clusters_are_bounded_by_the_means_of_clusters() -> None:
    scale = Scale(0.0, 1.0)
    result = clustered([[0.8, 1.0]] * 20, scale=scale)
    one_each = mean_estimate([[0.9]] * 20, Counts(20, 20), scale=scale)
    assert result.interval == pytest.approx(one_each.interval)
    assert result.method == "bounded-clustered"


def test_the_values_of_cases_are_averaged_within_their_clusters() -> None:
    values = [CaseValue(share, share, share) for share in (1.0, 1.0, 0.4, 0.6)]
    counts = Counts(4, 4, clusters=Clusters.of([2, 2], "user"))
    result = estimate_of_cases(values, counts, scale=Scale(0.0, 1.0), cluster_numbers=[0, 0, 1, 1])
    assert result.interval == pytest.approx(clustered([[1.0, 1.0], [0.4, 0.6]], scale=Scale(0.0, 1.0)).interval)
    lost = [*values[:3], CaseValue(None, 0.0, 1.0)]
    counts = Counts(4, 3, clusters=Clusters.of([2, 2], "user"))
    result = estimate_of_cases(lost, counts, scale=Scale(0.0, 1.0), cluster_numbers=[0, 0, 1, 1])
    assert result.low == pytest.approx(wilson_interval(0.6, 2)[0])


def test_a_percentile_takes_as_many_clusters_as_it_would_take_cases() -> None:
    """The 95th percentile has an upper bound from 72 on."""
    for clusters, is_bounded in ((71, False), (72, True)):
        values = [[float(cluster)] * 10 for cluster in range(clusters)]
        counts = Counts(10 * clusters, 10 * clusters, clusters=Clusters.of([10] * clusters, "document"))
        assert (quantile_estimate(values, counts, 0.95).high is not None) is is_bounded


def test_differences_are_counted_by_cluster_and_not_by_tango() -> None:
    right, wrong = CaseValue(1, 1, 1), CaseValue(0, 0, 0)
    pairs = [(right, right)] * 180 + [(right, wrong)] * 10 + [(wrong, right)] * 10
    differences = [difference(base, new, PROPORTION) for base, new in pairs]
    numbers = [index // 10 for index in range(200)]
    result = paired_estimate(differences, scale=PROPORTION, cluster_numbers=numbers, noun="document")
    means = [[0.0]] * 18 + [[-1.0], [1.0]]
    assert result.interval == pytest.approx(mean_estimate(means, Counts(20, 20), scale=Scale(-1, 1)).interval)
    assert result.method == "paired-bounded-clustered"
    assert describe(result).startswith("a difference of 0 (95 % interval")
    assert result.interval[0] < 2 * paired_estimate(differences, scale=PROPORTION).interval[0]


def test_an_estimate_says_how_many_clusters_it_rests_on() -> None:
    assert describe(clustered([[1.0] * 10] * 20)).endswith("n = 200 in 20 documents)")
    assert describe(clustered([[1.0] * 5] + [[1.0] * 10] * 19, missing=5)).endswith(
        "n = 195 of 200 in 20 documents: 5 errors)"
    )


@pytest.mark.parametrize("passed", [50, 60, 70, 100])
def test_a_topped_up_estimate_weighs_clusters_by_their_size(passed: int) -> None:
    values = [[1.0] * (1 + k % 4) for k in range(passed)] + [[0.0, 1.0]] * 2
    sizes = ClusterSizes(list(map(len, values)), 4)
    plain = clustered(values)
    result = sequential_estimate(plain, values, 1, PROPORTION, these_cases=False, clusters=sizes)
    evidence = Values.of([sum(cluster) / len(cluster) for cluster in values], [len(cluster) / 4 for cluster in values])
    assert result.method == "sequential-clustered"
    assert result.value == plain.value == pytest.approx(evidence.mean)
    for minimum in (0.7, 0.8, 0.85, 0.9):
        assert (result.interval[0] >= minimum) is is_shown_above(evidence, minimum)
    equal = Values.of(sum(cluster) / len(cluster) for cluster in values)
    assert result.interval[0] < confidence_sequence(equal)[0], "small clusters tell less"


def test_evidence_of_clusters_is_a_fair_bet_on_the_mean_of_all_results() -> None:
    """A cluster of four cases fails and 36 single ones pass: 0.9 of all results, though not of the clusters."""
    means, weights = [0.0] + [1.0] * 36, [1.0] + [0.25] * 36
    assert Values.of(means, weights).mean == pytest.approx(0.9)
    assert Values.of(means).mean == pytest.approx(36 / 37)
    assert log_e_above(Values.of(means, weights), 0.9) < 0 < log_e_above(Values.of(means), 0.9)
