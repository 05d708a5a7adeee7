from pathlib import Path
from typing import Any

from fepflow.analysis.comparison import suite_hash

SUITE: dict[str, Any] = {"checks": [{"type": "contains"}], "gate": {"min": {"a": 0.5}}}


def test_a_suite_keeps_the_hash_that_it_has_in_stores() -> None:
    expected = "d2d24f087d00e9c0309c3b81a5ab89bfe7afa6ae9b3b49e947c12f462fe4cea1"
    assert suite_hash(SUITE, 2, Path()) == expected


def test_slices_are_a_part_of_what_is_measured() -> None:
    with_slices = {**SUITE, "slices": {"by": "topic", "min": 0.8}}
    assert suite_hash(with_slices, 2, Path()) != suite_hash(SUITE, 2, Path())
    assert suite_hash({**SUITE, "slices": {"by": "topic"}}, 2, Path()) != suite_hash(with_slices, 2, Path())
