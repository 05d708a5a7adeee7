"""The pages in a real browser: hostile texts and pages, filters with and without JavaScript, accessibility."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from io import StringIO
from pathlib import Path
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.wait import WebDriverWait

from fepflow.pages.run_page import write_html
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.store import Store
from tests.fepflow.analysis.test_calibration import stored
from tests.fepflow.conftest import NO_ANSWER
from tests.fepflow.pages.chromium import Watched, watching
from tests.fepflow.pages.conftest import Row, answer, fill, served, simple, store_in
from tests.fepflow.pages.hostile import DEEP, HOSTILE, ONE_LINE, WORST
from tests.fepflow.pages.test_sessions import key_of

pytestmark = pytest.mark.e2e


def name_of(text: str) -> str:
    """The text as an id, which has no halves of characters."""
    return text.encode("utf-8", "replace").decode()


def hostile_row(text: str) -> Row:
    """Hostile wherever a text goes, but in the name of a check, which is a column beside all cases."""
    name = name_of(text)
    result = answer(False, metadata={"samples": {name: text}, "model_answered": name}, actual=text, expected=text)
    case = TestCase(id=name, input={name: text}, expected=text, metadata={name: text})
    span = {"name": text, "span_id": name, "start_ms": 1, "ms": 2, "status": "error", "attributes": {name: text}}
    trace = {"spans": [span, {**span, "parent_id": name, "span_id": "2"}], "unknown": {"usd": text}}
    output = Output(value=text, metadata={name: text, "trace": trace})
    return Row(case, [output], {"own": result, "says_so": answer(error=name)})


def hostile_checks() -> Row:
    """A case with a check for each hostile text, which is its name."""
    results = {name_of(text)[:100]: answer(False, actual=text) for text in HOSTILE}
    assert len(results) == len(HOSTILE)
    return Row(TestCase(id="checked", input=1), [Output(value="no")], {**results, "says_so": answer(False)})


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[str], str]) -> Iterator[Store]:
    with store_in(tmp_path_factory.mktemp("home"), new_store) as store:
        large = Row(TestCase(id="large", input=ONE_LINE), [Output(value=ONE_LINE)], {"says_so": answer(False)})
        word = "W" * 500
        said = [{"role": "user", "content": word}, {"role": "assistant", "content": word}]
        talk = {"steps": [{"public_output": word}], "messages": [*said, said[0]]}
        error = {"type": "unknown_error", "message": word, "partial": True}
        broken = Output(value=talk, metadata={"error": error})
        conversation = Row(TestCase(id="broken", input=1), [broken], {"says_so": answer(error=word)})
        deep = Row(TestCase(id="deep", input=DEEP), [Output(value=DEEP)], {"says_so": answer(False)})
        rows = [
            large,
            deep,
            conversation,
            simple(word[:80], False),
            *map(hostile_row, HOSTILE),
        ]
        fill(store, rows, run_id="bad00001", tags=[WORST], name=WORST)
        fill(store, rows, run_id="bad00002", tags=[WORST], name=WORST)
        fill(store, [hostile_checks()], run_id="bad00003", tags=[WORST], name=WORST)
        fill(store, [simple(f"good {number}") for number in range(70)], run_id="aaaa1111")
        mixed = [simple("flips", False), *(simple(f"good {number}") for number in range(69))]
        silent = Row(TestCase(id="silent", input=1), [NO_ANSWER], {"says_so": answer(error="no output")})
        fill(store, [*mixed, silent], run_id="bbbb2222", tags=["nightly"])
        fill(store, [*mixed[:3], silent], run_id="eeee5555", name="a few")
        for number, model in enumerate(("a", "b")):
            rows = [simple(f"v{n}", n < 10 or number > 0) for n in range(40)]
            options = {"variants": "dddd0000", "variant_number": number}
            fill(store, rows, run_id=f"dddd000{number}", options=options, variant={"model": model})
        fill(store, [simple("there"), Row(TestCase(id="to come", input=1), [None])], run_id="cccc3333", ended=False)
        stored(store, [{"passed": number % 3 > 0, "score": number, "tone": "plain"} for number in range(12)])
        yield store


@pytest.fixture(scope="module")
def site(filled: Store) -> Iterator[str]:
    with served(filled) as found:
        yield found


@pytest.fixture(scope="module")
def browser(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watching(site, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def case_address(run_id: str, case_id: str) -> str:
    return f"/runs/{run_id}/case?{urlencode({'id': case_id}, errors='surrogatepass')}"


def harmless(browser: Watched) -> None:
    """Nothing ran, nothing was loaded from elsewhere, nothing was refused: there was nothing to refuse."""
    assert browser.evaluate("window.hacked === undefined && document.title !== 'hacked'") is True
    foreign = (
        "script:not([src^='/static/']), iframe, object, embed, base, [onload], [onerror], [onfocus], "
        "[href^=javascript], [src*=evil], [href*='//evil']"
    )
    assert browser.all(foreign) == []
    assert browser.complaints() == []
    assert browser.hosts() == {"127.0.0.1"}


def verdict_is_seen(browser: Watched) -> None:
    """The verdict's badge is where a person looks first, and as large as a word."""
    WebDriverWait(browser.driver, 10).until(presence_of_element_located((By.CSS_SELECTOR, "#verdict .badge")))
    place = browser.evaluate(
        "(() => { const found = document.querySelector('#verdict .badge').getBoundingClientRect();"
        "return [found.top, found.left, found.width, found.height] })()"
    )
    top, left, width, height = place
    assert 0 <= top < 700
    assert 0 <= left < 300
    assert width > 30
    assert height > 10


def test_hostile_texts_are_shown_and_do_nothing(browser: Watched, filled: Store) -> None:
    suite = urlencode({"suite": WORST})
    paths = [
        "/runs",
        f"/runs?{suite}",
        "/runs/bad00001",
        "/runs/bad00001?page=2",
        "/runs/bad00003",
        case_address("bad00003", "checked"),
        "/",
        f"/suite?{suite}",
        f"/trends?{suite}",
    ]
    paths += ["/judges", "/compare?run=bad00001&run=bad00002"]
    for path in paths:
        browser.open(path)
        if path.startswith("/runs/bad") and "case" not in path:
            verdict_is_seen(browser)
        if path != "/judges":
            assert "{{7*7}}" in browser.text
        harmless(browser)


@pytest.mark.battery
def test_each_hostile_case_has_a_page(browser: Watched, filled: Store) -> None:
    for text in [*HOSTILE, "large", "deep"]:
        browser.open(case_address("bad00001", name_of(text)))
        heading = browser.driver.find_element(By.TAG_NAME, "h1").text
        assert "✗ failed" in heading, text
        harmless(browser)


def test_a_hostile_report_opened_from_a_file_does_nothing(browser: Watched, filled: Store, tmp_path: Path) -> None:
    for run_id in ("bad00001", "bad00003", "eeee5555"):
        file = StringIO()
        write_html(filled, filled.runs.get(run_id), file)
        path = tmp_path / f"{run_id}.html"
        path.write_text(file.getvalue(), encoding="utf-8")
        browser.hosts()
        browser.driver.get(path.as_uri())
        verdict_is_seen(browser)
        assert browser.evaluate("window.hacked === undefined && document.title !== 'hacked'") is True
        assert browser.evaluate("document.querySelectorAll('script, iframe, object, embed, base').length") == 0
        assert browser.complaints() == []
        assert browser.hosts() == set()
    assert "silent" in browser.text
    browser.driver.find_element(By.ID, "show-failed").click()
    assert "silent" not in browser.driver.find_element(By.CSS_SELECTOR, "table.cases").text
    browser.driver.find_element(By.CSS_SELECTOR, "table.cases tr.failed a").click()
    assert browser.url.endswith("#case-0")


def test_filters_change_the_list_at_once(browser: Watched) -> None:
    browser.open("/runs/bbbb2222")
    browser.shows("71 cases")
    browser.driver.find_element(By.NAME, "show").send_keys("in error")
    browser.shows("1 case", "silent")
    browser.until(lambda _: "show=errors" in browser.url, "the filter in its address")
    browser.driver.refresh()
    assert "silent" in browser.shows("1 case")
    browser.open("/runs/bbbb2222")
    browser.driver.find_element(By.NAME, "text").send_keys("flips")
    browser.shows("1 case\n")
    browser.open("/runs")
    browser.driver.find_element(By.NAME, "tag").send_keys("nightly" + Keys.ENTER)
    browser.shows("1 run\n", "bbbb2222")
    harmless(browser)


def test_a_run_under_way_moves_on_by_itself(browser: Watched, filled: Store) -> None:
    run = fill(filled, [simple("there"), Row(TestCase(id="to come", input=1), [None])], run_id="dddd4444", ended=False)
    browser.open(f"/runs/{run.id}")
    browser.shows("1 of 2 outputs", "Running")
    filled.leases.finish(run.id, "host/1/a", "failed", error="the agent is gone")
    browser.shows("Failed", "the agent is gone", "fepflow run --resume")
    harmless(browser)


def test_two_ticked_runs_are_compared(browser: Watched) -> None:
    browser.open("/runs?suite=refunds&status=completed")
    for box in browser.all("input[name=run]"):
        box.click()
    browser.driver.find_element(By.XPATH, "//button[contains(., 'Compare')]").click()
    browser.shows("Base aaaa1111", "New bbbb2222")
    harmless(browser)


def test_a_chart_answers_the_mouse(browser: Watched) -> None:
    """Under the policy of every page: no eval, no style or script in the page."""
    browser.open("/trends?suite=refunds")
    browser.until(lambda _: browser.all("figure.drawn svg"), "a chart that Vega has drawn")
    hint = browser.driver.find_element(By.CSS_SELECTOR, ".chart-hint")
    assert "from" not in hint.text
    targets = browser.all("figure.drawn [class*=target_] path")
    assert len(targets) == 2, "a column for each run"
    ActionChains(browser.driver).move_to_element(targets[1]).perform()
    browser.until(lambda _: "UTC · run bbbb2222" in hint.text, "what the mouse points at")
    assert " to 1), n = 70" in hint.text
    targets[1].click()
    browser.shows("bbbb2222", "Test cases")
    assert browser.url.endswith("/runs/bbbb2222")
    harmless(browser)


def test_a_chart_is_as_wide_as_its_place(browser: Watched) -> None:
    for width, columns in ((360, 1), (1000, 2)):
        browser.set_width(width)
        browser.open("/trends?suite=refunds")
        browser.until(lambda _: browser.all("figure.drawn svg"), "a chart that Vega has drawn")
        drawn = browser.evaluate("document.querySelector('figure.drawn svg').getBoundingClientRect().width")
        assert width / columns - 60 < drawn <= width / columns
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_all_works_without_javascript(browser: Watched) -> None:
    with browser.without_scripts():
        browser.open("/runs/bbbb2222")
        assert browser.evaluate("window.htmx === undefined") is True
        browser.driver.find_element(By.NAME, "show").send_keys("in error")
        browser.driver.find_element(By.CSS_SELECTOR, ".filters button").click()
        browser.shows("1 case", "silent")
        browser.follow("silent")
        browser.shows("no answer within 2 s")
        browser.open("/runs/aaaa1111")
        browser.follow("Next")
        browser.shows("Page 2 of 2")
        browser.open("/trends?suite=refunds")
        (point, *_) = browser.all("figure.chart a[href='/runs/bbbb2222']")
        assert point.get_attribute("tabindex") == "-1", "the table beside it has the same links for the keyboard"
        point.click()
        browser.until(lambda _: browser.url.endswith("/runs/bbbb2222"), "the run of the point")


def label_address(store: Store) -> str:
    run = next(run for run in store.runs.newest() if run.suite["checks"][0]["type"] == "llm_judge")
    return f"/runs/{run.id}/labels?check=llm_judge&order=disagreement"


def test_outputs_are_labelled_with_single_keys(browser: Watched, filled: Store) -> None:
    browser.open(label_address(filled))
    browser.shows("0 of 12 labelled")
    browser.driver.find_element(By.NAME, "note").send_keys("yes and no")
    browser.driver.find_element(By.TAG_NAME, "h1").click()
    assert "0 of 12 labelled" in browser.text, "what is typed is no label"
    browser.driver.find_element(By.TAG_NAME, "body").send_keys("y")
    browser.shows("1 of 12 labelled")
    browser.driver.find_element(By.TAG_NAME, "body").send_keys("n")
    browser.shows("2 of 12 labelled")
    harmless(browser)


def test_a_printed_page_is_as_wide_as_paper(browser: Watched) -> None:
    browser.set_width(720)
    browser.set_media("light", "print")
    for path in (
        "/runs?suite=refunds",
        "/runs/bbbb2222",
        case_address("bbbb2222", "flips"),
        "/compare?base=aaaa1111&new=bbbb2222",
    ):
        browser.open(path)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 720, path
        assert not browser.driver.find_element(By.TAG_NAME, "header").is_displayed()
    browser.open("/")
    assert "Inconclusive" in browser.text, "a card keeps its header on paper"
    browser.set_media("light")
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def audited(store: Store) -> list[str]:
    compared = "/compare?base=aaaa1111&new=bbbb2222"
    cases = [case_address("bbbb2222", "flips"), case_address("bbbb2222", "silent"), case_address("bad00001", "broken")]
    lists = ["/runs", "/", "/suite?suite=refunds", "/judges", "/trends?suite=refunds", "/sign-in", "/nothing"]
    return [
        label_address(store),
        "/runs/eeee5555",
        "/runs/cccc3333",
        "/variants/dddd0000",
        *cases,
        compared,
        *lists,
        "/runs/eeee5555/report.html",
    ]


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("dark", 360),
        *(
            pytest.param(*other, marks=pytest.mark.battery)
            for other in (("light", 360), ("light", 1400), ("dark", 1400))
        ),
    ],
)
def test_pages_keep_to_wcag(browser: Watched, filled: Store, tmp_path: Path, scheme: str, width: int) -> None:
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.set_media(scheme)
    browser.set_width(width)
    found = []
    for path in audited(filled):
        if path.endswith("report.html"):
            with (tmp_path / "report.html").open("w", encoding="utf-8") as file:
                write_html(filled, filled.runs.get("eeee5555"), file)
            browser.driver.get((tmp_path / "report.html").as_uri())
        else:
            browser.open(path)
        browser.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        browser.driver.execute_script(axe)
        rules = '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]'
        violations = browser.evaluate(
            f"axe.run(document, {{runOnly: {rules}}}).then((found) => found.violations.flatMap((rule) =>"
            " rule.nodes.slice(0, 3).map((node) => `${rule.id}: ${node.html} ${node.failureSummary}`)))"
        )
        found += [f"{path}: {violation}" for violation in violations]
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than its window"
    browser.complaints()
    assert not found, "\n".join(found)


FORGED = """<!doctype html><title>forged</title>
<form id="f" method="post" action="{target}/runs/{run}/labels">
<input name="csrf" value="known"><input name="check" value="llm_judge"><input name="field" value="passed">
<input name="case" value="c0"><input name="repeat" value="1"><input name="label" value="no"></form>
<script>
{script}
</script>"""
SUBMITTED = "document.getElementById('f').submit();"
FETCHED = """
fetch(document.getElementById('f').action, {method: "POST", credentials: "include", mode: "no-cors",
  body: new URLSearchParams(new FormData(document.getElementById('f')))})
  .then(() => document.title = "sent", () => document.title = "sent");
"""


@contextmanager
def attacker(pages: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the cookies that browsers have sent to it."""
    cookies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            body = pages.get(self.path, "").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Set-Cookie", "fepflow_csrf=known; Path=/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", cookies
        finally:
            server.shutdown()


@pytest.mark.parametrize("asks", [True, False], ids=["signed in", "no key"])
def test_a_page_of_another_port_stores_no_label_and_gets_no_key(browser: Watched, store: Store, asks: bool) -> None:
    run = stored(store, [{"passed": True}] * 3)
    key = key_of(store) if asks else ""
    browser.driver.delete_all_cookies()
    with served(store) as site:
        browser = Watched(browser.driver, site)
        page = f"/runs/{run.id}/labels?order=disagreement"
        if asks:
            sign_in(browser, key)
        browser.open(page)
        browser.shows("llm_judge")
        pages = {
            f"/{name}": FORGED.replace("{target}", site).replace("{run}", run.id).replace("{script}", script)
            for name, script in (("submitted", SUBMITTED), ("fetched", FETCHED))
        }
        with attacker(pages) as (elsewhere, cookies):
            browser.driver.get(f"{elsewhere}/submitted")
            browser.until(
                lambda text: browser.url.startswith(site) and ("does not come from a page" in text or "Origin" in text),
                "an answer of ours",
            )
            browser.driver.get(f"{elsewhere}/fetched")
            browser.until(lambda _: browser.driver.title == "sent", "that it was sent")
        assert store.labels.current(run.id) == []
        assert not any("fep_" in cookie for cookie in cookies), "what another port is sent is no key"
        if asks:
            assert any("fepflow_session=" in cookie for cookie in cookies), "cookies know no ports"

        browser.open(page)
        browser.driver.find_element(By.CSS_SELECTOR, "button[name=label]").click()
        browser.until(lambda _: len(store.labels.current(run.id)) == 1, "the label of the person")
        if asks:
            browser.driver.find_element(By.CSS_SELECTOR, "form[action='/sign-out'] button").click()
            browser.until(lambda _: browser.url.endswith("/sign-in"), "the page to sign in")
            browser.open("/runs")
            assert "/sign-in" in browser.url


def sign_in(browser: Watched, key: str) -> None:
    browser.open("/runs")
    browser.driver.find_element(By.NAME, "key").send_keys(key)
    browser.driver.find_element(By.CSS_SELECTOR, "form.stacked button").click()
    browser.shows("Sign out")
