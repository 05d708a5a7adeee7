"""A person labels outputs in the browser, and the judge is compared with the labels without leaving it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fepflow.protocol.test_case import Output
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.analysis.test_calibration import CHECK as JUDGE
from tests.fepflow.analysis.test_calibration import stored
from tests.fepflow.pages.conftest import OF_A_PAGE
from tests.pages_process import pages_process

CHECK = "llm_judge"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labels")


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with pages_process(home) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=20, headers=OF_A_PAGE) as client:
        yield client


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{home / 'fepflow.db'}") as store:
        yield store


@pytest.fixture
def run(store: Store) -> RunRecord:
    return stored(store, [{"passed": number % 3 > 0, "score": number, "tone": "plain"} for number in range(12)])


def fields_of(page: str) -> dict[str, str]:
    """The hidden fields of the last form that has a case, else of the first one."""
    forms = re.findall(r"<form(.*?)</form>", page, re.DOTALL)
    form = next((form for form in forms if 'name="case"' in form), next(form for form in forms if "hidden" in form))
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def queue(client: httpx.Client, run: RunRecord, **wanted: str) -> str:
    response = client.get(f"/runs/{run.id}/labels", params={"check": CHECK, **wanted})
    assert response.status_code == 200, response.text
    return response.text


def test_a_draw_is_labelled_and_the_judge_compared_with_it(client: httpx.Client, store: Store, run: RunRecord):
    first = queue(client, run)
    assert "draw at random" in first
    drawn = client.post(f"/runs/{run.id}/labels/draw", data={**fields_of(first), "size": "12"}, follow_redirects=True)
    page = drawn.text
    for done in range(12):
        assert f"{done} of 12 labelled" in page
        fields = fields_of(page)
        label = {"label": "yes" if int(fields["case"][1:]) % 3 else "no", "note": f"of {fields['case']}"}
        page = client.post(f"/runs/{run.id}/labels", data={**fields, **label}, follow_redirects=True).text
    assert "You have labelled all 12 outputs" in page
    compared = client.post(f"/runs/{run.id}/labels/calibrate", data=fields_of(page))

    assert compared.status_code == 200
    assert re.search(r"kappa</th><td>1</td>", compared.text)
    labels = store.labels.current(run.id)
    assert {label.case_id: label.label for label in labels} == {f"c{n}": n % 3 > 0 for n in range(12)}
    assert not any(label.disputed for label in labels)
    assert all(label.draw_id and label.note == f"of {label.case_id}" for label in labels)
    (calibration,) = store.labels.calibrations_of(*_judge(run))
    assert (calibration.n, calibration.statistics["draw"]["n"]) == (12, 12)
    assert "TPR 1" in client.get("/judges").text


def _judge(run: RunRecord) -> tuple[str, str]:
    from fepflow.analysis.judge_reliability import judges_of_run

    (judge,) = judges_of_run(run)
    return judge.judge, judge.rubric


@pytest.mark.parametrize(("field", "label", "read"), [("score", "4", 4.0), ("tone", "kind", "kind")])
def test_numbers_and_words_are_labelled_too(
    client: httpx.Client, store: Store, run: RunRecord, field: str, label: str, read: object
):
    page = queue(client, run, field=field)
    assert ('name="label" inputmode' if field == "score" else '<button name="label" value="kind"') in page
    client.post(f"/runs/{run.id}/labels", data={**fields_of(page), "label": label})
    (found,) = store.labels.current(run.id)
    assert (found.field, found.label, found.draw_id, found.disputed) == (field, read, None, True)


def test_a_label_of_one_case_is_shown_on_its_page_and_withdrawn(client: httpx.Client, store: Store, run: RunRecord):
    page = queue(client, run, case="c3")
    fields = {**fields_of(page), "note": "<b>polite</b>"}
    shown = client.post(f"/runs/{run.id}/labels", data={**fields, "label": "no"}, follow_redirects=True)
    assert shown.url.path == f"/runs/{run.id}/case"
    assert "said false (passed)" in shown.text
    assert not store.labels.current(run.id)[0].disputed, "it was chosen"
    assert "&lt;b&gt;polite&lt;/b&gt;" in shown.text
    client.post(f"/runs/{run.id}/labels", data={**fields, "withdraw": "1"})
    assert store.labels.current(run.id) == []


def test_the_page_shows_what_the_judge_was_asked_and_leads_to_the_case(client: httpx.Client, store: Store):
    judge = {**JUDGE, "arguments": {**JUDGE["arguments"], "prompt": "<i>Polite?</i> {{$.output.value}}"}}
    schema = {"type": "object", "properties": {"passed": {"type": "boolean", "description": "No <b>rude</b> word."}}}
    judge["arguments"]["response_format"] = schema
    run = stored(store, [{"passed": True}] * 2, check=judge, output=Output(value="Good day."))
    page = queue(client, run, order="disagreement")
    assert "What the judge was asked" in page
    assert "&lt;i&gt;Polite?&lt;/i&gt; Good day." in page
    assert "No &lt;b&gt;rude&lt;/b&gt; word." in page
    (way_back,) = set(re.findall(rf'href="(/runs/{run.id}/case[^"]*)"', page))
    assert client.get(way_back.replace("&amp;", "&")).status_code == 200


def test_the_page_of_a_chosen_case_does_not_call_it_drawn(client: httpx.Client, run: RunRecord):
    page = queue(client, run, case="c3")
    assert "This output was chosen, not drawn at random" in page
    assert "outputs are drawn at random" not in page
    assert "outputs are drawn at random" in queue(client, run)


def test_what_the_judge_said_is_not_shown_before(client: httpx.Client, store: Store):
    run = stored(store, [{"passed": True, "score": 87_654, "tone": "kind"}] * 3)
    for order in ("random", "disagreement"):
        page = queue(client, run, order=order, field="score")
        assert "87" not in re.sub(r'name="csrf" value="\w+"|/static/\w+', "", page).replace(run.id, "")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"label": "maybe"}, 400), ({"case": "nope"}, 404), ({"check": "nope"}, 404), ({"field": "reason"}, 400),
        ({"repeat": "0"}, 404), ({"repeat": "x"}, 400), ({"draw": "nope"}, 404), ({"note": "x" * 10_001}, 400),
        ({"csrf": "other"}, 403), ({"csrf": ""}, 403),
    ],
)  # fmt: skip
def test_what_is_no_label_is_refused_and_not_stored(
    client: httpx.Client, store: Store, run: RunRecord, change: dict[str, str], status: int
):
    fields = {**fields_of(queue(client, run, order="disagreement")), "label": "yes"}
    response = client.post(f"/runs/{run.id}/labels", data={**fields, **change})
    assert response.status_code == status, response.text
    assert store.labels.current(run.id) == []


def test_a_form_of_another_browser_is_refused(address: str, client: httpx.Client, store: Store, run: RunRecord):
    fields = {**fields_of(queue(client, run, order="disagreement")), "label": "yes"}
    with httpx.Client(base_url=address) as other:
        other.get("/runs")
        assert other.post(f"/runs/{run.id}/labels", data=fields).status_code == 403
        assert httpx.post(f"{address}/runs/{run.id}/labels", data=fields).status_code == 403
    json = client.post(f"/runs/{run.id}/labels", json=fields)
    assert json.status_code == 400
    assert store.labels.current(run.id) == []


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"check": "nope"}, 404), ({"field": "nope"}, 404), ({"order": "nope"}, 400), ({"after": "-1"}, 400),
        ({"case": "nope"}, 404),
    ],
)  # fmt: skip
def test_a_queue_that_is_not_there_says_so(client: httpx.Client, run: RunRecord, wanted: dict[str, str], status: int):
    response = client.get(f"/runs/{run.id}/labels", params={"check": CHECK, **wanted})
    assert response.status_code == status
    assert "<h1>" in response.text


def test_nothing_is_compared_without_labels(client: httpx.Client, run: RunRecord):
    fields = fields_of(queue(client, run, order="disagreement"))
    response = client.post(f"/runs/{run.id}/labels/calibrate", data=fields)
    assert response.status_code == 400
    assert "has no labels" in response.text


def test_the_next_output_is_shown_after_the_last_label_and_skipped_ones_come_back(
    client: httpx.Client, store: Store, run: RunRecord
):
    first = fields_of(queue(client, run, order="disagreement"))["case"]
    second = fields_of(queue(client, run, order="disagreement", after="1"))["case"]
    assert first != second
    fields = fields_of(queue(client, run, order="disagreement", after="1"))
    page = client.post(f"/runs/{run.id}/labels", data={**fields, "label": "yes"}, follow_redirects=True).text
    assert fields_of(page)["case"] not in (first, second)
    assert fields_of(queue(client, run, order="disagreement", after="12"))["case"] == first
