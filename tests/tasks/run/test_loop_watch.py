from __future__ import annotations

import asyncio
import logging
import time

import pytest

from fepflow.tasks.run.loop_watch import loop_watched


@pytest.mark.may_stall(reason="to see what comes of it")
async def test_a_stall_of_the_loop_is_logged_with_the_case(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fepflow.run"):
        async with loop_watched(lambda: "case-7"):
            await asyncio.sleep(0)
            time.sleep(0.8)  # noqa: ASYNC251  # the stall
            await asyncio.sleep(0.3)
    (message,) = caplog.messages
    assert message.startswith("the event loop was held up for ")
    assert message.endswith(" the case case-7")
