import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.judges import (
    ConfusionMatrix,
    Kappa,
    cohen_kappa,
    kappa_and_error,
    krippendorff_alpha,
    tabulate,
)

RATINGS = st.integers(1, 5)
PAIRS = st.lists(st.tuples(RATINGS, RATINGS), min_size=1, max_size=40)

# The diagnoses of two raters, of whom each saw a hundred patients (Fleiss, Statistical Methods for Rates and
# Proportions).
DIAGNOSES = ConfusionMatrix((0, 1, 2), ((75, 1, 4), (5, 4, 1), (0, 0, 10)))


def table_of(pairs: list[tuple[int, int]]) -> ConfusionMatrix:
    return tabulate(pairs, sorted({rating for pair in pairs for rating in pair}))


def kappa_of(*counts: tuple[int, ...], quadratic: bool = False) -> Kappa:
    return cohen_kappa(ConfusionMatrix(tuple(range(len(counts))), counts), quadratic=quadratic)


def error_of(table: ConfusionMatrix) -> float:
    size = len(table.categories)
    return kappa_and_error(table.counts, [[float(i == j) for j in range(size)] for i in range(size)])[1]


class TestKappa:
    def test_is_the_published_one(self) -> None:
        assert cohen_kappa(DIAGNOSES).value == pytest.approx(0.676, abs=1e-3)

    def test_has_the_published_standard_error(self) -> None:
        # By another program: kappa 0.4842, asymptotic standard error 0.1380 (SAS, FREQ with AGREE).
        table = ConfusionMatrix((0, 1, 2), ((0, 4, 1), (0, 8, 0), (0, 1, 5)))
        assert cohen_kappa(table).value == pytest.approx(0.4842, abs=1e-4)
        assert error_of(table) == pytest.approx(0.1380, abs=1e-4)

    def test_weighs_a_disagreement_of_numbers_by_its_square(self) -> None:
        near = cohen_kappa(table_of([(1, 2), (2, 1), (3, 3), (4, 4), (5, 5)]), quadratic=True)
        far = cohen_kappa(table_of([(1, 5), (5, 1), (2, 2), (3, 3), (4, 4)]), quadratic=True)
        assert [near.value, far.value] == pytest.approx([0.9, -0.6])

    def test_of_numbers_with_gaps_goes_by_the_numbers(self) -> None:
        steps = [(1, 1), (2, 2), (9, 9), (1, 2)]
        widened = [(1, 1), (8, 8), (9, 9), (1, 8)]
        first, second = (cohen_kappa(table_of(pairs), quadratic=True).value for pairs in (steps, widened))
        assert first is not None
        assert second is not None
        assert first > 0.97 > 0.6 > second

    def test_of_two_categories_is_the_same_with_weights(self) -> None:
        assert kappa_of((20, 5), (10, 15)) == kappa_of((20, 5), (10, 15), quadratic=True)
        assert kappa_of((20, 5), (10, 15)).value == pytest.approx(0.4)  # Cohen's own example, in every textbook

    @pytest.mark.parametrize("counts", [((7, 0), (0, 0)), ((4, 3), (0, 0))], ids=["judge says so too", "judge varies"])
    def test_is_undefined_where_all_labels_are_the_same(self, counts) -> None:
        kappa = kappa_of(*counts)
        assert (kappa.value, kappa.low, kappa.high) == (None, None, None)
        assert kappa.why == "all labels are the same: nothing tells agreement from chance"

    def test_is_undefined_without_observations(self) -> None:
        assert kappa_of((0, 0), (0, 0)).why == "there is nothing to compare"
        assert cohen_kappa(ConfusionMatrix((), ())).value is None

    def test_is_0_for_a_constant_judge(self) -> None:
        kappa = kappa_of((12, 0), (8, 0))
        assert kappa.value == 0
        assert kappa.low is not None
        assert kappa.low < 0

    @given(PAIRS, st.booleans())
    def test_is_at_most_one_and_its_interval_holds_it_and_has_a_width(self, pairs, quadratic: bool) -> None:
        kappa = cohen_kappa(table_of(pairs), quadratic=quadratic)
        if len({label for label, _ in pairs}) == 1:
            assert kappa.value is None
            return
        assert kappa.value is not None
        assert kappa.low is not None
        assert kappa.high is not None
        assert -1 <= kappa.low <= kappa.value <= kappa.high <= 1
        assert kappa.low < kappa.high
        assert (kappa.value == pytest.approx(1)) == all(label == verdict for label, verdict in pairs)

    @given(PAIRS, st.booleans())
    def test_is_symmetric(self, pairs, quadratic: bool) -> None:
        swapped = [(verdict, label) for label, verdict in pairs]
        one, other = (cohen_kappa(table_of(some), quadratic=quadratic) for some in (pairs, swapped))
        if one.value is not None and other.value is not None:
            assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high))

    @given(PAIRS, st.sampled_from([0.8, 0.9, 0.99]))
    def test_more_confidence_is_a_wider_interval(self, pairs, confidence: float) -> None:
        table = table_of(pairs)
        narrow, wide = (cohen_kappa(table, confidence=level) for level in (0.5, confidence))
        if narrow.low is not None and wide.low is not None:
            assert wide.low <= narrow.low

    @given(PAIRS)
    def test_an_unused_category_changes_no_value(self, pairs) -> None:
        few, all_of_them = table_of(pairs), tabulate(pairs, range(9))
        assert (few.n, few.agreed) == (all_of_them.n, all_of_them.agreed)
        one, other = cohen_kappa(few).value, cohen_kappa(all_of_them).value
        assert (one is None) == (other is None)
        if one is not None:
            assert one == pytest.approx(other)


@pytest.mark.parametrize(("positive", "kappa"), [(0.5, 0.6), (0.8, 0.6), (0.5, 0.9), (0.85, 0.85)])
@pytest.mark.parametrize("n", [15, 60])
def test_the_interval_holds_the_truth_as_often_as_it_promises(positive: float, kappa: float, n: int) -> None:
    randomness = random.Random(20251122)
    chance = positive**2 + (1 - positive) ** 2
    apart = (1 - kappa) * (1 - chance) / 2
    weights = [positive - apart, apart, apart, 1 - positive - apart]
    pairs = [(1, 1), (1, 0), (0, 1), (0, 0)]
    held = total = 0
    for _ in range(400):
        found = cohen_kappa(tabulate(randomness.choices(pairs, weights, k=n), (0, 1)))
        if found.low is not None and found.high is not None:
            total += 1
            held += found.low <= kappa + 1e-9 and kappa <= found.high + 1e-9
    assert held / total >= 0.92


def test_a_table_counts_pairs() -> None:
    table = tabulate([("yes", "no"), ("yes", "yes"), ("yes", "no")], ["no", "yes"])
    assert table.counts == ((0, 0), (2, 1))
    assert (table.n, table.agreed) == (3, 1)
    assert math.isfinite(error_of(DIAGNOSES))


# Four observers and twelve units, of which not all were seen by all (Krippendorff, Computing Krippendorff's
# Alpha-Reliability, 2011).
OBSERVED = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)
UNITS = [[rating for rating in unit if rating is not None] for unit in zip(*OBSERVED, strict=True)]


class TestAlpha:
    def test_is_the_published_one(self) -> None:
        assert krippendorff_alpha(UNITS) == pytest.approx(0.743, abs=5e-4)
        assert krippendorff_alpha(UNITS, interval=True) == pytest.approx(0.849, abs=5e-4)

    def test_of_two_observers_and_yes_or_no_is_the_published_one(self) -> None:
        first, second = (0, 1, 0, 0, 0, 0, 0, 0, 1, 0), (1, 1, 1, 0, 0, 1, 0, 0, 0, 0)
        assert krippendorff_alpha(zip(first, second, strict=True)) == pytest.approx(0.095, abs=5e-4)

    def test_is_1_if_all_agree_and_unknown_if_nothing_differs(self) -> None:
        assert krippendorff_alpha([["a", "a", "a"], ["b", "b"]]) == 1
        assert krippendorff_alpha([[0.1, 0.1], [0.1, 0.1]], interval=True) is None
        assert krippendorff_alpha([["a"], ["b"]]) is None
        assert krippendorff_alpha([]) is None

    @given(st.lists(st.lists(RATINGS, max_size=4), max_size=12), st.booleans(), st.randoms())
    def test_does_not_depend_on_who_said_what(self, units, interval: bool, rng) -> None:
        alpha = krippendorff_alpha(units, interval=interval)
        shuffled = [rng.sample(unit, len(unit)) for unit in units]
        other = krippendorff_alpha(shuffled, interval=interval)
        assert (alpha is None) == (other is None)
        assert alpha is None or (alpha <= 1 + 1e-12 and other == pytest.approx(alpha))
