"""Hostile replies, from the socket to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from fepflow.store.store import Store

from .attack import Attack, refuse_wrong_end, run
from .replies import all_replies
from .sample import sampled

ALWAYS = ("lists", "a bomb in gzip", "members of which the last two are the same", "gzip of 400,000 empty parts")


@pytest.mark.may_stall(reason="it is measured inside")
@pytest.mark.parametrize("attack", sampled(all_replies(), 8, ALWAYS))
async def test_a_hostile_reply_is_bounded_and_ends_as_it_should(attack: Attack, store: Store, tmp_path: Path) -> None:
    ended = await run(attack, store, tmp_path)
    refuse_wrong_end(attack, ended)
