"""Pages of others in a browser: which may call."""

from __future__ import annotations

from fepflow.access.access import FAILURES_PER_MINUTE
from tests.fepflow.api.rest.middleware.conftest import Serve


async def test_pages_of_others_are_refused_where_it_is_open(serve: Serve) -> None:
    async with serve() as service:
        own = {"Host": f"localhost:{service.port}"}
        refused = [
            {"Host": "evil.example.org"},
            {**own, "Origin": "http://evil.example.org"},
            {**own, "Origin": "null"},
            {**own, "X-Forwarded-For": "127.0.0.1"},
        ]
        for headers in refused:
            for method, path in (("POST", "/api/evaluations"), ("GET", "/v1/runs")):
                assert (await service.send(method, path, headers)).status_code == 403, headers
        assert service.seen == []
        assert {outcome for *_, outcome in service.entries()} == {"403"}
        same = {**own, "Origin": f"http://localhost:{service.port}"}
        assert (await service.send("POST", "/api/evaluations", same)).status_code == 201
        answer = await service.send("OPTIONS", "/v1/a", {**same, "Access-Control-Request-Method": "POST"})
        assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_page_cannot_fill_the_log_nor_shut_others_out(serve: Serve) -> None:
    async with serve() as service:
        answers = [await service.send("POST", "/api/evaluations", {"Origin": "null"}) for _ in range(40)]
        assert {answer.status_code for answer in answers} == {403, 429}
        assert len(service.entries()) == FAILURES_PER_MINUTE + 1
        assert (await service.send("GET", "/v1/runs")).status_code == 201


async def test_with_a_key_another_host_and_origin_will_do(serve: Serve) -> None:
    async with serve() as service:
        headers = {**service.key(), "Host": "fepflow.example.org", "Origin": "https://app.example.org", "Via": "1.1 x"}
        answer = await service.send("GET", "/v1/runs", headers)
        assert answer.status_code == 201
        assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_the_origins_that_are_named_may_call(serve: Serve) -> None:
    async with serve(cors_origins="https://app.example.org") as service:
        asked = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "x-api-key, content-type"
        answer = await service.send("OPTIONS", "/api/evaluations", asked)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, asked["Origin"])
        assert "access-control-allow-credentials" not in answer.headers
        answer = await service.send("POST", "/api/evaluations", {"Origin": asked["Origin"]})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, asked["Origin"])
        answer = await service.send("POST", "/api/evaluations", {"Origin": "https://evil.example.org"})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
