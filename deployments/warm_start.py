"""The imports of a run, loaded once by the worker's fork server, from which each run is forked.

No thread is started here: a forked process has only the thread that forked it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from prefect.client.schemas.responses import OrchestrationResult
from pydantic import BaseModel
from sqlalchemy.orm import configure_mappers

from fepflow.checks.registry import CHECKS, ENTRY_POINTS, installed_checks, our_checks

MODULES = (
    "anyio._backends._asyncio",  # loaded by name, when its event loop is first used
    "encodings.idna",
    "aiohttp",
    "fepflow.calls.http",
    "fepflow.deployments.warm_worker",
    "fepflow.flows.evaluate",
    "fepflow.flows.evaluate_shard",
    "fepflow.flows.rescore",
    "prefect.task_engine",
    "prefect.utilities.visualization",
    "rich._emoji_codes",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
)


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


for _module in MODULES:
    import_module(_module)
for _type in CHECKS:
    our_checks(_type)
# Others are found in the metadata of all packages: without any, a run need not read it, which takes 25 ms. Those that
# are installed might start threads: each run loads them itself.
if not entry_points(group=ENTRY_POINTS):
    installed_checks()
# Models that name each other are completed when they are first used, which would take 50 ms of each run.
for _model in set(_models(BaseModel)):
    if _model.__module__.startswith("prefect.") and not _model.__pydantic_complete__:
        _model.model_rebuild(raise_errors=False)
_ANSWER = OrchestrationResult[Any]  # pydantic makes this class anew when nobody holds it: 5 ms
configure_mappers()  # the same of the store's records: 20 ms
# A collection in a run would touch all of these objects, and so copy the pages of memory that the runs share.
gc.collect()
gc.freeze()
