"""Addresses of the result pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fepflow.errors import InputError
from fepflow.page_links import case_page, compare_page, link, run_page, trends_page
from fepflow.settings import settings

SetPages = Callable[[str], None]


@pytest.fixture
def set_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[SetPages]:
    def set_to(url: str) -> None:
        monkeypatch.setenv("FEPFLOW_PAGES_URL", url)
        settings.cache_clear()

    settings.cache_clear()
    yield set_to
    settings.cache_clear()


def test_names_are_encoded_as_a_whole(set_pages: SetPages) -> None:
    set_pages("https://eval.example.org/")
    assert run_page("a1b2") == "https://eval.example.org/runs/a1b2"
    assert case_page("a1b2", "a/b ?#%ü)") == "https://eval.example.org/runs/a1b2/case?id=a%2Fb+%3F%23%25%C3%BC%29"
    assert compare_page("a1", "b2") == "https://eval.example.org/compare?base=a1&new=b2"
    assert trends_page("my suite/x") == "https://eval.example.org/trends?suite=my+suite%2Fx"
    assert trends_page("half \ud83d") == "https://eval.example.org/trends?suite=half+%3F"


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:4280", "http://127.0.0.1:4280"),
        ("https://[::1]:8443/eval//", "https://[::1]:8443/eval"),
        ("https://eval.example.org/a(b)[c]<d>", "https://eval.example.org/a%28b%29%5Bc%5D%3Cd%3E"),
    ],
)
def test_what_stands_before_the_pages(given: str, base: str, set_pages: SetPages) -> None:
    set_pages(given)
    assert run_page("a") == f"{base}/runs/a"


def test_without_the_setting_there_are_no_links(set_pages: SetPages, monkeypatch: pytest.MonkeyPatch) -> None:
    set_pages("")
    assert run_page("a") is None
    monkeypatch.delenv("FEPFLOW_PAGES_URL")
    settings.cache_clear()
    assert [run_page("a"), case_page("a", "b"), compare_page("a", "b"), trends_page("s")] == [None] * 4
    assert link("text", None) == "text"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("eval.example.org", "has no scheme"),
        ("ftp://eval.example.org", "ftp:// is not known"),
        ("javascript:alert(1)", "has no scheme"),
        ("https://user:canary@eval.example.org", "no user and no password"),
        ("https://@eval.example.org", "no user and no password"),
        ("https://eval.example.org?token=canary", "neither [?] nor #"),
        ("https://eval.example.org/#canary", "neither [?] nor #"),
        ("https://eval.example.org:99999", "the host or the port is not valid"),
        ("https://", "has no host"),
        ("https://eval .example.org", "a space"),
        ("https://bücher.example", "written in ASCII"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(url: str, why: str, set_pages: SetPages) -> None:
    set_pages(url)
    with pytest.raises(InputError, match=why) as caught:
        settings()
    assert "FEPFLOW_PAGES_URL" in str(caught.value)
    assert "canary" not in str(caught.value)
