"""A person labels outputs in the browser, and the judge is compared with the labels without leaving it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.analysis.test_calibration import CHECK as JUDGE
from tests.fepflow.analysis.test_calibration import stored
from tests.fepflow.pages.conftest import served, store_in

CHECK = "llm_judge"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[str], str]) -> Iterator[Store]:
    with store_in(tmp_path_factory.mktemp("home"), new_store) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    with served(store) as found:
        yield found


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
    assert re.search(r"beyond chance</th><td>1</td>", compared.text)
    labels = store.labels.current(run.id)
    assert {label.case_id: label.label for label in labels} == {f"c{n}": n % 3 > 0 for n in range(12)}
    assert not any(label.disputed for label in labels)
    assert all(label.draw_id and label.note == f"of {label.case_id}" for label in labels)
    (calibration,) = store.labels.calibrations_of(*_judge(run))
    assert (calibration.n, calibration.statistics["draw"]["n"]) == (12, 12)
    assert "it says the same as people of 12 of 12 labelled outputs" in client.get("/judges").text


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


def drawn(client: httpx.Client, run: RunRecord) -> str:
    data = {**fields_of(queue(client, run)), "size": "12"}
    return client.post(f"/runs/{run.id}/labels/draw", data=data, follow_redirects=True).text


def say(client: httpx.Client, run: RunRecord, page: str, label: str) -> str:
    data = {**fields_of(page), "label": label, "note": ""}
    return client.post(f"/runs/{run.id}/labels", data=data, follow_redirects=True).text


def back(page: str) -> str | None:
    found = re.search(r'href="([^"]*)" data-key="b"', page)
    return found[1].replace("&amp;", "&") if found else None


def test_the_output_before_is_opened_again_and_its_label_changed_within_the_draw(
    client: httpx.Client, store: Store, run: RunRecord
):
    page = drawn(client, run)
    assert back(page) is None
    first = fields_of(page)["case"]
    page = say(client, run, page, "yes")
    address = back(page)
    assert address is not None
    again = client.get(address).text
    assert fields_of(again)["case"] == first
    assert "You said: <strong>right</strong>" in again
    after = say(client, run, again, "no")
    assert fields_of(after)["case"] not in ("", first)
    (label,) = store.labels.current(run.id)
    assert (label.case_id, label.label, label.draw_id is not None) == (first, False, True)
    listed = re.search(rf'href="([^"]*)">{first}</a>: wrong', after)
    assert listed is not None
    assert "You said" in client.get(listed[1].replace("&amp;", "&")).text


def test_agreement_is_told_after_each_fifth_label_and_never_beside_one_that_is_changed(
    client: httpx.Client, run: RunRecord
):
    page = drawn(client, run)
    wrong = int(fields_of(page)["case"][1:])
    for done in range(12):
        assert ("You agree with the judge" in page) == (done >= 5), done
        if done in (5, 6, 9):
            assert "in 4 of 5 so far (80 %)" in page
        if done >= 5:
            assert "You agree" not in client.get(back(page) or "").text
        number = int(fields_of(page)["case"][1:])
        page = say(client, run, page, "yes" if (number % 3 > 0) != (number == wrong) else "no")
    assert "You agree with the judge in 11 of 12 so far (92 %)" in page
    compared = client.post(f"/runs/{run.id}/labels/calibrate", data=fields_of(page)).text
    assert "Where they differ: 1" in compared
    assert f">c{wrong}</a>: people say {'wrong' if wrong % 3 else 'right'}, the judge" in compared
    assert "It cannot be told yet whether this judge can be trusted" in compared


@pytest.mark.parametrize("last", ["x", "1", "0:c3", "1:nope"])
def test_a_way_back_that_leads_nowhere_is_left_out(client: httpx.Client, run: RunRecord, last: str):
    response = client.get(f"/runs/{run.id}/labels", params={"check": CHECK, "order": "disagreement", "last": last})
    assert response.status_code == (400 if last == "x" else 200)
    assert back(response.text) is None


RUBRIC = {
    "type": "rubric",
    "arguments": {"criteria": "Polite.", "steps": True, "model_config": {"model": "openai/any"}},
}


def test_a_rubric_shows_its_criteria_and_steps_and_a_judge_of_claims_its_context(client: httpx.Client, store: Store):
    resolved = {
        "criteria": {"value": "Polite <b>always</b>."},
        "context": {"value": ["Refunds take 5 days.", "Shipping is free."]},
        "question": {"value": "How long?"},
    }
    answer = {"score": 0.87, "passed": True, "reason": "87 thanks"}
    run = judged_once(store, RUBRIC, resolved, {"response": answer, "metadata": {"steps": ["Look for thanks."]}})
    page = client.get(f"/runs/{run.id}/labels", params={"field": "passed", "order": "disagreement"}).text
    assert "Polite &lt;b&gt;always&lt;/b&gt;." in page
    for words in ("Look for thanks.", "Refunds take 5 days.</li>", "The question that the judge saw", "How long?"):
        assert words in page
    assert "87 thanks" not in page
    assert "0 of 1 labelled" in page


def judged_once(store: Store, check: dict[str, Any], resolved: dict[str, Any], results: dict[str, Any]) -> RunRecord:
    """Store a run of one case with this result of a judge."""
    run_id = uuid4().hex
    store.runs.create(
        RunRecord(id=run_id, name="rubric", suite={"name": "rubric", "checks": [check]}, repeats=1),
        [TestCase(id="c0", input=1)],
    )
    result = CheckResult(
        check_type=check["type"], status="completed", results=results, resolved_arguments=resolved,
        evaluated_at=utc_now(), metadata={"check_id": check["type"]},
    )  # fmt: skip
    row = NewCheckResult(0, 0, check["type"], "a" * 64, result, True)
    store.results.write(run_id, [NewOutput(0, 0, "b" * 64, Output(value="x"))], [row])
    return store.runs.get(run_id)


def test_the_scorer_of_an_imported_run_is_labelled_like_a_judge(client: httpx.Client, store: Store):
    new = RunRecord(
        id=uuid4().hex,
        name="imported",
        suite={
            "name": "imported",
            "target": {"imported": {"format": "deepeval"}},
            "test_cases": [],
            "checks": [{"type": "recorded_score", "id": "Polite", "arguments": {"result": "$.output.metadata.x"}}],
        },
        repeats=1,
        cause="import",
    )
    store.runs.create(new, [TestCase(id=f"c{number}", input=number) for number in range(6)])
    store.leases.acquire(new.id, "me", 60)
    run = store.runs.get(new.id)
    outputs, checks = [], []
    for number in range(6):
        result = CheckResult(
            check_type="recorded_score",
            status="completed",
            results={"passed": number > 2, "score": 1.0, "reasoning": "THE-REASON"},
            evaluated_at=utc_now(),
            metadata={"check_id": "Polite"},
        )
        outputs.append(NewOutput(number, 0, "b" * 64, Output(value="x")))
        checks.append(NewCheckResult(number, 0, "Polite", "a" * 64, result, number > 2))
    store.results.write(run.id, outputs, checks)
    store.leases.finish(run.id, "me", "completed", outcome="fail", verdict={"gate": "", "reasons": []}, metrics=[])
    overview = client.get("/judges").text
    assert "Imported from: deepeval" in overview
    assert "Say what is right" in client.get(f"/runs/{run.id}/case", params={"id": "c0"}).text
    first = queue(client, run, check="Polite")
    page = client.post(
        f"/runs/{run.id}/labels/draw", data={**fields_of(first), "size": "6"}, follow_redirects=True
    ).text
    for _ in range(6):
        assert "THE-REASON" not in page
        fields = fields_of(page)
        label = {"label": "yes" if int(fields["case"][1:]) > 2 else "no"}
        page = client.post(f"/runs/{run.id}/labels", data={**fields, **label}, follow_redirects=True).text
    assert "You agree with the judge in 6 of 6" in page
    compared = client.post(f"/runs/{run.id}/labels/calibrate", data=fields_of(page))
    assert "passes 100 % of what people call right" in compared.text
    assert "0 of 6 labelled" in queue(client, run, check="Polite", order="disagreement", field="score")
