"""People compare two runs blind in the browser, and the page of a comparison says which cases changed, and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import httpx
import pytest

from fepflow.analysis.preferences import BlindComparison, PairVerdict, judged_rows
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.pages.conftest import Row, answer, fill, served, store_in

QUESTION = "Which answer helps more?"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[str], str]) -> Iterator[Store]:
    with store_in(tmp_path_factory.mktemp("home"), new_store) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    with served(store) as found:
        yield found


def filled(store: Store, outputs: list[str | None], passed: list[bool | None], salt: str) -> RunRecord:
    """A run with these outputs; None is a call that failed."""
    rows = []
    for number, (text, right) in enumerate(zip(outputs, passed, strict=True)):
        failure = {"error": {"type": "timeout_error", "message": "late", "recoverable": True}}
        output = Output(value=None, metadata=failure) if text is None else Output(value=text)
        check = answer(error="late") if text is None else answer(right, text=text, phrases="yes")
        case = TestCase(id=f"case {number}", input=f"input {number} {salt}", expected="yes")
        rows.append(Row(case, [output], {"says_so": check, "polite": answer()}))
    return fill(store, rows, run_id=uuid4().hex)


@pytest.fixture
def runs(store: Store, request: pytest.FixtureRequest) -> tuple[RunRecord, RunRecord]:
    """Twelve cases: two worse, one better, one in error, one with another output, the others the same."""
    base = ["alpha yes"] * 5 + ["no"] + ["yes then"] + ["same"] * 5
    new = ["beta no"] * 2 + [None] + ["alpha yes"] * 2 + ["yes"] + ["yes now"] + ["same"] * 5
    salt = request.node.name
    return (
        filled(store, base, [True] * 5 + [False] + [True] * 6, salt),
        filled(store, new, [False] * 2 + [None] + [True] * 9, salt),
    )


def page(client: httpx.Client, path: str, **query: str) -> str:
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.text


def fields_of(text: str) -> dict[str, str]:
    form = next(form for form in re.findall(r"<form(.*?)</form>", text, re.DOTALL) if 'name="pair"' in form)
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


def boxes(text: str) -> dict[str, str]:
    """The texts on a page by their headings."""
    return dict(re.findall(r"<h3>(\w+)</h3>\s*<pre[^>]*>(.*?)</pre>", text, re.DOTALL))


def test_two_runs_are_compared_blind_and_what_came_of_it_is_shown(
    client: httpx.Client, store: Store, runs: tuple[RunRecord, RunRecord]
) -> None:
    base, new = runs
    wanted = {"base": base.id, "new": new.id, "question": QUESTION}
    first = page(client, "/compare/blind", **wanted)
    assert "0 of 4 answered" in first  # with the same outputs, or with an error, there is nothing to choose
    main = first.partition("<main")[2]
    assert base.id[:8] not in re.sub(r'(href|value)="[^"]*"', "", main)
    assert re.search(r'data-key="ArrowLeft"', main)
    text = first
    for done in range(4):
        assert f"{done} of 4 answered" in text
        shown = boxes(text)
        is_new = shown["Left"] in ("beta no", "yes", "yes now")
        assert is_new or shown["Right"] in ("beta no", "yes", "yes now")
        choice = "left" if is_new else "right"
        data = {**fields_of(text), "choice": choice}
        text = client.post("/compare/blind", data=data, follow_redirects=True).text
    assert "You have answered all 4 pairs" in text
    blind = BlindComparison(store, base, new)
    verdicts = [
        PairVerdict(pair, "other" if number else "one", ("second", "first"), ("a", "b"))
        for number, pair in enumerate(blind.pairs.values())
    ]
    store.preferences.put(judged_rows(QUESTION, "openai/judge", verdicts))
    compared = page(client, "/compare", base=base.id, new=new.id)
    section = " ".join(re.sub(r"<[^>]+>", " ", compared.partition('id="preferences"')[2]).split())
    assert "Which answer helps more?" in section
    assert "People and openai/judge agree on 3 of 4 pairs" in section
    assert "4 4 0 0 1 " in section  # pairs, new preferred, base preferred, ties, win rate
    back = page(client, "/compare/blind", **wanted, pair=data["pair"])
    assert 'name="pair" value="' + data["pair"] in back
    client.post("/compare/blind", data={**fields_of(back), "choice": "tie"})
    people = blind.questions()[0].people
    assert people is not None
    assert (people.counts["other"], people.counts["tie"]) == (3, 1)


def test_sides_are_random_and_the_same_each_time(store: Store, runs: tuple[RunRecord, RunRecord]) -> None:
    blind = BlindComparison(store, *runs)
    sides = {
        person: [blind.shown(pair, person, 1).left_hash == pair.hashes[0] for pair in blind.pairs.values()]
        for person in map(str, range(20))
    }
    assert sides == {
        person: [blind.shown(pair, person, 1).left_hash == pair.hashes[0] for pair in blind.pairs.values()]
        for person in sides
    }
    on_the_left = sum(sum(each) for each in sides.values())
    assert 20 < on_the_left < 60  # of 80


def test_an_answer_needs_a_pair_of_the_runs_and_a_form_of_ours(
    client: httpx.Client, runs: tuple[RunRecord, RunRecord]
) -> None:
    base, new = runs
    form = {"base": base.id, "new": new.id, "question": QUESTION, "pair": "a" * 64, "choice": "left"}
    assert client.post("/compare/blind", data=form).status_code == 403
    text = page(client, "/compare/blind", base=base.id, new=new.id, question=QUESTION)
    wrong = client.post("/compare/blind", data={**fields_of(text), "pair": "a" * 64, "choice": "left"})
    assert (wrong.status_code, "An answer is left, right or tie" in wrong.text) == (400, True)
    assert client.get("/compare/blind", params={"base": base.id, "new": new.id}).status_code == 400


@pytest.mark.parametrize(
    ("show", "shown", "absent"),
    [
        ("", ["case 0", "case 1"], ["case 5", "case 6"]),
        ("better", ["case 5"], ["case 0"]),
        ("error", ["case 2"], ["case 0"]),
        ("output", ["case 6"], ["case 0", "case 7"]),
    ],
)
def test_cases_are_grouped_by_what_changed(
    client: httpx.Client, runs: tuple[RunRecord, RunRecord], show: str, shown: list[str], absent: list[str]
) -> None:
    base, new = runs
    text = page(client, "/compare", base=base.id, new=new.id, show=show)
    changes = text.partition('id="changes"')[2].partition('id="preferences"')[0]
    assert all(f"<bdi>{name}</bdi>" in changes for name in shown)
    assert not any(f"<bdi>{name}</bdi>" in changes for name in absent)
    counts = [int(count) for count in re.findall(r'<span class="tag">(\d+)</span></a>', changes)]
    assert counts == [2, 1, 0, 1, 1, 0]
    if not show:
        assert "<del>alpha yes</del>" in changes
        assert "<ins>beta no</ins>" in changes
    assert 'class="chart"' in text  # the forest plot
