"""Where Prefect's API is, for whatever of ours uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from fepflow.services.prefect_api import PrefectApi, flow_run_address
from tests.http_server import serving

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_prefects_client_asks_no_proxy_of_the_environment_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    api = PrefectApi("http://127.0.0.1:4200/api", local=True)
    assert "NO_PROXY" not in api.environment
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert api.environment["NO_PROXY"] == api.environment["no_proxy"] == "127.0.0.1,localhost"
    monkeypatch.setenv("NO_PROXY", "localhost,.corp.example")
    assert api.environment["no_proxy"] == "localhost,.corp.example,127.0.0.1"


def test_an_api_elsewhere_is_asked_as_the_environment_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert "NO_PROXY" not in PrefectApi("https://prefect.corp.example/api", local=False).environment


@pytest.mark.parametrize("given", [None, pytest.param("0", marks=pytest.mark.battery)])
def test_prefects_client_sends_no_telemetry_unless_the_environment_says_so(given: str | None) -> None:
    code = (
        "import os\nfrom fepflow.services.prefect_api import PrefectApi, use\n"
        "use(PrefectApi('http://127.0.0.1:9/api', local=False), show_logs=False)\n"
        "from prefect.analytics import is_telemetry_enabled\n"
        "print(is_telemetry_enabled(), os.environ['DO_NOT_TRACK'])\n"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("DO_NOT_TRACK", "CI")}
    env |= {} if given is None else {"DO_NOT_TRACK": given}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == (["False", "1"] if given is None else ["True", "0"])


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"default_ui": "v2", "v1_base_url": "/", "v2_base_url": "/v2"}, "/v2"),
        ({"default_ui": "v1", "v1_base_url": "/", "v2_base_url": "/v2"}, ""),
        ({"default_ui": "v2", "v1_base_url": "/ui", "v2_base_url": "/ui/v2"}, "/ui/v2"),
        ({"default_ui": "v2", "v2_base_url": None}, ""),
        ({"api_url": "that of a version with one UI"}, ""),
        (["no", "settings"], ""),
    ],
)
def test_a_flow_run_is_linked_in_the_ui_that_prefect_opens_by_default(
    monkeypatch: pytest.MonkeyPatch, settings: Any, path: str
) -> None:
    @asynccontextmanager
    async def ui() -> AsyncIterator[ASGIApp]:
        async def answer(request: Request) -> JSONResponse:
            return JSONResponse(settings)

        yield Starlette(routes=[Route("/ui-settings", answer)])

    with serving(ui) as address:
        monkeypatch.setenv("PREFECT_UI_URL", address)
        assert flow_run_address("a1") == f"{address}{path}/runs/flow-run/a1"


def test_a_flow_run_is_linked_though_prefect_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_UI_URL", "http://127.0.0.1:9")
    assert flow_run_address("a1") == "http://127.0.0.1:9/runs/flow-run/a1"
