"""Hostile replies of models that checks ask, from the socket to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from fepflow.calls.models import _litellm
from fepflow.store.store import Store

from .attack import Attack, refuse_wrong_end, run
from .judge_replies import all_judge_replies
from .sample import sampled

ALWAYS = ("a bomb in gzip",)


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Load the library of models before anything is measured: it takes seconds."""
    _litellm.load_for_calls()


@pytest.mark.may_stall(reason="it is measured inside")
@pytest.mark.parametrize("attack", sampled(all_judge_replies(), 4, ALWAYS))
async def test_a_hostile_judge_is_bounded_and_never_passes_wrongly(
    attack: Attack, store: Store, tmp_path: Path
) -> None:
    refuse_wrong_end(attack, await run(attack, store, tmp_path))
