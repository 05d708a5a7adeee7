"""Who is admitted, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from fepflow.access.access import FAILURES_PER_MINUTE, Access, Credentials
from fepflow.access.caller import Caller, Scope
from fepflow.access.credentials import create_key
from fepflow.errors import AuthenticationError, PermissionDeniedError, RateLimitError, UserError
from fepflow.store.store import Store
from tests.fepflow.access.conftest import MakeSettings, token

HERE = "127.0.0.1"


def key(store: Store, *scopes: Scope, lifetime: float | None = None) -> str:
    return create_key(store, "tests", scopes or ("read", "evaluate"), lifetime)[1]


async def admit(access: Access, source: str = HERE, needs: Scope = "read", starts_run: bool = False, **shown: Any):
    caller = await access.identify(Credentials(source=source, **shown))
    access.permit(caller, needs, starts_run=starts_run)
    return caller


async def refused(call: Awaitable[object]) -> str:
    with pytest.raises(AuthenticationError) as caught:
        await call
    assert type(caught.value) is AuthenticationError
    return str(caught.value)


async def test_open_to_all_on_this_machine_without_keys(access: Access) -> None:
    caller = await admit(access, needs="admin")
    assert caller.name is None
    assert (await access.identify(Credentials())).name is None, "a socket of the file system"
    for elsewhere in ("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "0.0.0.0", "localhost", "", "ipv4:127.0.0.1:1"):
        await refused(admit(access, elsewhere))


async def test_what_is_shown_has_to_be_valid_where_nothing_is_asked_for(access: Access) -> None:
    await refused(admit(access, api_key="fep_000000000000_" + "x" * 43))
    await refused(admit(access, api_key=""))
    await refused(admit(access, authorization="Bearer " + token()))
    await refused(admit(access, authorization=""))


async def test_a_key_admits_with_its_scopes_and_closes_the_door(access: Access, store: Store) -> None:
    reader = key(store, "read")

    caller = await admit(access, "192.0.2.1", api_key=reader)

    assert caller == Caller(f"key:{reader[4:16]}", frozenset({"read"}))
    with pytest.raises(PermissionDeniedError, match="'evaluate'"):
        await admit(access, needs="evaluate", api_key=reader)
    assert "X-API-Key" in await refused(admit(access))
    assert await admit(access, needs="evaluate", api_key=key(store, "admin"))


async def test_a_revoked_key_is_refused_from_then_on_and_opens_nothing(access: Access, store: Store) -> None:
    mine = key(store)
    await admit(access, api_key=mine)

    store.access.revoke_key(mine[4:16])

    assert "is revoked" in await refused(admit(access, api_key=mine))
    await refused(admit(access))


async def test_an_expired_key_is_refused_and_opens_nothing(access: Access, store: Store) -> None:
    mine = key(store, lifetime=0.001)
    await asyncio.sleep(0.01)
    assert "is expired" in await refused(admit(access, api_key=mine))
    await refused(admit(access))


async def test_a_wrong_secret_of_a_known_key_and_an_unknown_key_read_the_same(access: Access, store: Store) -> None:
    mine, other = key(store), key(store)
    store.access.revoke_key(other[4:16])
    crossed = mine[:17] + other[17:]
    said = {
        await refused(admit(access, api_key=text))
        for text in (crossed, "fep_000000000000_" + mine[17:], other[:17] + mine[17:])
    }
    assert said == {"The API key is not valid."}


HOSTILE = [
    "",
    " ",
    "é" * 60,
    "\x00",
    "\ud83d" * 60,
    "fep_" * 10,
    "x" * 1_000_000,
    "fep_" + "0" * 12 + "_" + "\x00" * 43,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_keys_and_tokens_are_not_valid(text: str, store: Store, jwt_settings: MakeSettings) -> None:
    key(store)
    async with Access(store, jwt_settings(), may_be_open=True) as access:
        for name, value in (("api_key", text), ("authorization", text), ("authorization", f"Bearer {text}")):
            shown: dict[str, Any] = {name: value}
            message = await refused(admit(access, **shown))
            assert len(message) < 200


async def test_where_it_may_not_be_open_a_key_is_asked_for(store: Store, make_settings: MakeSettings) -> None:
    async with Access(store, make_settings(), may_be_open=False) as access:
        await refused(admit(access))


async def test_tokens_admit_and_close_the_door(store: Store, jwt_settings: MakeSettings) -> None:
    async with Access(store, jwt_settings(), may_be_open=True) as access:
        assert await admit(access, authorization="bearer " + token()) == Caller(
            "jwt:ci", frozenset({"read", "evaluate"})
        )
        await refused(admit(access))
        await refused(admit(access, authorization=f"Basic {token()}"))
        await refused(admit(access, authorization=token()))
        await refused(admit(access, api_key=token()))
        with pytest.raises(PermissionDeniedError):
            await admit(access, needs="evaluate", authorization="Bearer " + token(scope="read"))


async def test_a_bad_setting_of_tokens_is_an_error_at_the_start(store: Store, jwt_settings: MakeSettings) -> None:
    with pytest.raises(UserError, match="FEPFLOW_JWT_AUDIENCE"):
        Access(store, jwt_settings(jwt_audience=None), may_be_open=True)


async def test_limits_are_those_of_a_key_and_of_what_it_does(store: Store, make_settings: MakeSettings) -> None:
    settings = make_settings(starts_per_minute=2, requests_per_minute=3)
    mine, other = key(store), key(store)
    async with Access(store, settings, may_be_open=True) as access:
        for _ in range(3):
            await admit(access, api_key=mine)
        for _ in range(2):
            await admit(access, api_key=mine, starts_run=True)
        for starts_run in (False, True):
            with pytest.raises(RateLimitError, match="in a minute") as caught:
                await admit(access, api_key=mine, starts_run=starts_run)
            assert 1 <= caught.value.retry_after <= 60
            await admit(access, api_key=other, starts_run=starts_run)


async def test_what_a_key_may_not_do_counts_too(store: Store, make_settings: MakeSettings) -> None:
    reader = key(store, "read")
    async with Access(store, make_settings(requests_per_minute=1), may_be_open=True) as access:
        with pytest.raises(PermissionDeniedError):
            await admit(access, needs="evaluate", api_key=reader)
        with pytest.raises(RateLimitError):
            await admit(access, api_key=reader)


async def test_nobody_is_limited_where_no_key_is_asked_for(store: Store, make_settings: MakeSettings) -> None:
    async with Access(store, make_settings(starts_per_minute=1), may_be_open=True) as access:
        for _ in range(3):
            await admit(access, starts_run=True)


async def test_failures_are_limited_by_source_and_valid_keys_of_it_are_not(access: Access, store: Store) -> None:
    mine = key(store)
    for number in range(FAILURES_PER_MINUTE):
        await refused(admit(access, f"2001:db8::{number:x}", api_key="guess"))
    with pytest.raises(RateLimitError, match="from this address"):
        await admit(access, "2001:db8::ffff", api_key="guess")
    with pytest.raises(RateLimitError):
        await admit(access, "2001:db8::1", authorization="Bearer guess")
    assert await admit(access, "2001:db8::1", api_key=mine)
    await refused(admit(access, "2001:db8:0:1::1", api_key="guess"))


async def test_of_many_sources_together_so_much_is_told_and_recorded(
    store: Store, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fepflow.access.access.STRANGERS_PER_MINUTE", 60)
    monkeypatch.setattr("fepflow.access.access.REFUSALS_PER_MINUTE", 6)
    mine = key(store)
    async with Access(store, make_settings(), may_be_open=False) as access:
        for number in range(80):
            source = f"10.{number % 250}.{number // 250}.1"
            outcome = "401"
            try:
                await access.identify(Credentials(api_key="guess", source=source))
            except RateLimitError:
                outcome = "429"
            except AuthenticationError:
                pass
            await access.record(None, source, "GET /v1/runs", None, outcome)
        assert len(store.access.audit_entries(9_999)) == 60 + 6
        assert await admit(access, "10.1.1.1", api_key=mine)
