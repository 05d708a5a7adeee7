"""Which attacks the ordinary tests make; the battery makes all."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from typing import Protocol

import pytest

SEED = int(os.environ.get("FEPFLOW_TEST_SEED", "1"))


class Attack(Protocol):
    """Something hostile, which has a name."""

    @property
    def name(self) -> str: ...


def sampled(attacks: Iterable[Attack], count: int, always: Sequence[str] = ()) -> list[pytest.ParameterSet]:
    """All attacks, of which `count`, and those that `always` names, are no matter for the battery."""
    every = list(attacks)
    chosen = {attack.name for attack in random.Random(SEED).sample(every, min(count, len(every)))} | {*always}
    assert {*always} <= {attack.name for attack in every}
    return [
        pytest.param(attack, id=attack.name, marks=() if attack.name in chosen else pytest.mark.battery)
        for attack in every
    ]
