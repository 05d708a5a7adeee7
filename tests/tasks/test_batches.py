import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.tasks.batches import MAX_BATCHES, Batch, calls_of_shard, split_into_batches


@given(st.integers(0, 20_000), st.none() | st.integers(1, 5_000))
def test_every_call_is_in_one_batch_and_there_are_a_hundred_at_most(calls, batch_size):
    batches = split_into_batches(range(calls), batch_size)
    assert [index for batch in batches for index in range(batch.start, batch.stop)] == list(range(calls))
    assert len(batches) <= MAX_BATCHES
    assert all(batch.start < batch.stop for batch in batches)


@pytest.mark.parametrize(
    ("calls", "batch_size", "count"),
    [
        (0, None, 0),
        (1, None, 1),
        (25, None, 25),
        (26, None, 9),
        (1_000, None, 12),
        (25_000, None, 50),
        (1_000_000, None, 100),
        (1_000, 100, 10),
        (1_000, 1, 100),
    ],
)
def test_batches_are_single_calls_while_there_are_few_and_then_about_twelve(calls, batch_size, count):
    assert len(split_into_batches(range(calls), batch_size)) == count


def test_a_batch_knows_its_cases_and_repeats():
    batch = Batch(4, 9)
    assert batch.units(3) == [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert batch.case_range(3) == (1, 3)


def test_a_batch_of_one_repeat_has_that_of_each_case():
    (batch,) = split_into_batches(range(30, 33), 3, repeat=2)
    assert batch.units(3) == [(30, 2), (31, 2), (32, 2)]
    assert batch.case_range(3) == (30, 33)


@given(st.integers(0, 100), st.integers(1, 50), st.integers(1, 7))
def test_case_range_spans_the_units_of_a_batch(start, length, repeats):
    batch = Batch(start, start + length)
    case_indices = [case_index for case_index, _ in batch.units(repeats)]
    assert batch.case_range(repeats) == (case_indices[0], case_indices[-1] + 1)


@given(st.integers(0, 1_000), st.integers(1, 5), st.integers(1, 100))
def test_shards_hold_every_call_once_in_order_and_whole_cases(cases, repeats, shards):
    parts = [calls_of_shard(cases, repeats, shard, shards) for shard in range(shards)]
    assert [call for part in parts for call in part] == list(range(cases * repeats))
    assert all(part.start % repeats == 0 for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= repeats


@given(st.integers(0, 5_000), st.integers(0, 5_000))
def test_the_batches_of_a_shard_hold_its_calls(start, length):
    batches = split_into_batches(range(start, start + length))
    assert [index for batch in batches for index in range(batch.start, batch.stop)] == list(
        range(start, start + length)
    )
