import asyncio
import re
import time
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core import patterns
from fepflow.checks.core.patterns import check_pattern, search
from fepflow.checks.engine import evaluate_async
from fepflow.errors import CheckArgumentsError
from fepflow.jsonpath import queries
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase
from fepflow.time_limit import IN_LOOP
from tests.watch import watched

ORDINARY = [
    r"\bParis\b",
    r"^def fibonacci\(n\):",
    r"\d{4}-\d{2}-\d{2}",
    r"(yes|no)",
    r"(?i)error|failed|refused",
    r"^\s*\{",
    r"\$\d+(\.\d{2})?",
    r"####\s*-?[\d,]+",
    r"(?<=Answer: )[A-D]",
    r"^(?!.*sorry)",
    r"(ab)+c",
    r"```(?:json)?",
]

CATASTROPHIC = {
    "nested plus": ("(a+)+$", "a" * 40 + "!"),
    "nested star": ("(a*)*$", "a" * 40 + "!"),
    "nested lazy": ("(a+?)+?$", "a" * 40 + "!"),
    "three deep": ("((a+)+)+$", "a" * 40 + "!"),
    "overlapping alternatives": ("(a|aa)+$", "a" * 60 + "!"),
    "the same alternatives": ("(a|a)*$", "a" * 40 + "!"),
    "an optional inside a repeat": ("(a?b?)*$", "a" * 40 + "!"),
    "words": (r"^(\w+\s?)*$", "word " * 12 + "!"),
    "an e-mail address": (r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+$", "a" * 40),
    "a Java class name": (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 50),
    "csv fields": (r"^(.*?,){11}P", "1,2,3,4,5,6,7,8,9,10,11,12,13" * 40),
    "optionals in a row": ("a?" * 40 + "a" * 40, "a" * 40),
    "a counted optional": ("(a?){40}a{40}", "a" * 40),
    "a counted choice": ("(?:a|a){40}b", "a" * 40),
    "choices in a row": ("(a|a)" * 40 + "b", "a" * 40),
    "bounded repeats": ("((a{1,9}){1,9}){1,9}b", "a" * 80),
    "repeats in a row": ("a*" * 20 + "b", "a" * 200),
    "a back reference": (r"(a+)+\1b", "a" * 40),
    "a reference in a repeat": (r"(?:(a+)\1)+$", "a" * 200 + "!"),
    "inside a lookahead": ("(?=(a+)+$)", "a" * 40 + "!"),
    "inside a lookbehind's neighbour": ("(?<=x)(a+)+$", "x" + "a" * 40 + "!"),
    "inside a condition": ("(x)?(?(1)b|(a+)+$)", "a" * 40 + "!"),
    "quadratic on a long text": (r"\s+$", " " * 200_000 + "x"),
    "cubic on a long text": (r".*.*=", "x" * 20_000),
}


IN_THEIR_TEXT = {
    "nested star",
    "the same alternatives",
    "an optional inside a repeat",
    "optionals in a row",
    "a counted optional",
}


def test_an_ordinary_pattern_is_searched_in_the_loop():
    for pattern in ORDINARY:
        token = IN_LOOP.set(True)
        assert search(pattern, 0, "an ordinary text " * 10) in (True, False)
        IN_LOOP.reset(token)


@pytest.mark.parametrize("pattern", ["((a{100}){100}){100}", "(?:a?){9999}b", "(((a|b){60}){60}){60}"])
def test_a_short_pattern_that_would_take_much_memory_is_refused(pattern):
    with pytest.raises(ValueError, match="more than 20,000 parts"):
        check_pattern(pattern, 0)


def test_a_pattern_that_takes_long_to_compile_is_refused(monkeypatch):
    monkeypatch.setattr(patterns, "_COMPILE_LIMIT", 0.05)
    with pytest.raises(ValueError, match="takes too long to be compiled"):
        check_pattern("[\\x00-\\U0010fff0é]" * 50, int(re.IGNORECASE))


ITEMS = [{"id": index, "text": "a" * 40 + "!", "parts": list(range(5))} for index in range(300)]

CATASTROPHIC_PATHS = [
    "$.output.value[?count($..id)>1]",
    "$..[?count($..*)>1]",
    "$.output.value[?search(@.text,'((a+)+)+$')]",
    "$.output.value[?search(@.text,'(a|aa)+$')].id",
    "$..[?match(@.text,'(a|aa)+b')]",
    "$.output.value[?count($.output.value[?count($..parts)>1])>1]",
    "$..[?count(@..*)>count($..*)]",
    "$..[?length(@)>0 && count($..text)>0]",
    "$.output.value[?count($..[?@.id])>0]",
    "$..parts[?count($..[?@>1])>0]",
    "$.output.value[?search(@.text,'(a|a)+$')].id",
    "$.output.value[?count($..[?search(@.text,'(a+)+$')])>0]",
]

ORDINARY_CHECKS = 200


@pytest.mark.may_stall("a dozen paths are evaluated in Python, in threads that share the interpreter with the loop")
async def test_catastrophic_patterns_and_paths_time_out_beside_ordinary_checks(monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT", 0.1)  # it is 1 s, for two dozen of them
    monkeypatch.setattr(queries, "TIME_LIMIT", 0.2)
    searches = [
        Check(type="regex", arguments={"text": text, "pattern": pattern}) for pattern, text in CATASTROPHIC.values()
    ]
    paths = [Check(type="is_empty", arguments={"value": path}) for path in CATASTROPHIC_PATHS]
    ordinary = [Check(type="contains", arguments={"text": "$.test_case.input", "phrases": "Paris"})] * ORDINARY_CHECKS
    case, output = TestCase(id="case", input="Paris"), Output(value=ITEMS)
    await evaluate_async([case], [output], [*paths[2:3], *searches[:1]])  # the libraries are loaded once

    async with watched() as taken:
        result = await evaluate_async([case], [output], [*searches, *paths, *ordinary])
    results = result.results[0].check_results
    for name, ended in zip(CATASTROPHIC, results, strict=False):
        # A time-out, or the truth if the search was quick after all.
        if ended.status == "error":
            assert ended.error.type == "timeout_error", (name, ended.error)
        else:
            assert ended.results == {"passed": name in IN_THEIR_TEXT}, name
    for path, ended in zip(CATASTROPHIC_PATHS, results[len(searches) :], strict=False):
        assert ended.error is not None, path
        assert ended.error.type == "timeout_error", (path, ended.error)
    assert [ended.results for ended in results[-ORDINARY_CHECKS:]] == [{"passed": True}] * ORDINARY_CHECKS
    # Of each search and path the time limit is 1.5 s at most, and they are executed side by side.
    assert taken.seconds < 10


BOMB = Check(type="regex", arguments={"pattern": r"(?:(a+)\1)+$|(a|aa)+$"})


async def test_many_guarded_searches_leave_asyncios_own_threads_to_others(monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT", 0.2)
    searches = asyncio.create_task(evaluate_async([""] * 20, ["a" * 5_000 + "!"] * 20, [BOMB]))
    await asyncio.sleep(0.05)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "in time"), 1) == "in time"
    searches.cancel()
    await asyncio.gather(searches, return_exceptions=True)


@pytest.fixture(autouse=True)
def nothing_goes_on_in_the_background():
    """A search that was given up goes on for a while: the next test does not begin beside it."""
    yield
    while LOOKUPS._unfinished:
        time.sleep(0.05)


async def test_one_catastrophic_pattern_ends_within_the_promised_two_seconds():
    started = perf_counter()
    result = await evaluate_async([""], ["a" * 5_000 + "!"], [BOMB])
    error = result.results[0].check_results[0].error
    assert error.type == "timeout_error"
    assert perf_counter() - started < 2


def test_a_text_over_a_million_characters_is_refused():
    with pytest.raises(CheckArgumentsError, match="1,000,001"):
        search("(a+)+$", 0, "a" * 1_000_001)


def test_a_pattern_of_many_nested_groups_is_searched_or_refused(ask):
    for depth in (50, 150, 499):
        result = ask("regex", text="a", pattern="(" * depth + "a" + ")" * depth)
        assert result.status == "completed" or result.error.type == "validation_error", result.error


SAME_IN_BOTH = [
    *ORDINARY,
    *[pattern for pattern in (text for text, _ in CATASTROPHIC.values()) if len(pattern) < 30],
    r"^a$",
    r"a$",
    r"\Aa\Z",
    r"[\w.-]+@[\w-]+",
    r"(?m)^b",
    r"(?s)a.b",
    r"(?x) a  b # comment",
    r"[^a]",
    r"[]a]",
    r"[a-]",
    r"(?P<n>a)(?P=n)",
    r"(?:a|b)*?c",
    r"\d+",
    r"\s",
    r"\bé",
    r"[[a]",
    r"[^[a]",
    r"[]\[a]+",
    r"\[[a]+",
    r"(?:ab){e<=1}",
    r"a{e}",
    r"a{",
    r"a{,}",
    r"a{,2}b",
    r"a{2",
    r"\x41",
    r"(?i:A)b",
    r"\N{DIGIT ONE}",
]
TEXTS = [
    "",
    "a",
    "b",
    "aa",
    "ab",
    "a\n",
    "a\nb",
    "b\na",
    "aab",
    "AB",
    "ab1",
    "é",
    "\u0661",
    "a b",
    "[a",
    "a{2",
    "x@y",
    "]",
    "-",
    "1",
]


def test_the_guarded_search_finds_what_python_finds():
    for flags in [0, re.IGNORECASE | re.MULTILINE | re.DOTALL, re.ASCII]:
        for pattern in SAME_IN_BOTH:
            for text in TEXTS:
                assert search(pattern, int(flags), text) is bool(re.search(pattern, text, flags)), text


atoms = st.sampled_from(
    ["a", "b", ".", r"\w", r"\d", r"\s", "[ab]", "[^a]", "^", "$", r"\b", "(a)", "(?:ab|b)", "(?=b)"]
)
repeats = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "*?"])
pieces = st.tuples(atoms, repeats).map(
    lambda pair: pair[0] if pair[0] in ("^", "$", r"\b", "(?=b)") else pair[0] + pair[1]
)


@settings(max_examples=50)
@given(st.lists(pieces, min_size=1, max_size=5).map("".join), st.text(alphabet="ab1 \n_é", max_size=8))
def test_the_guarded_search_finds_what_python_finds_in_any_combination(pattern, text):
    assert search(pattern, 0, text) is bool(re.search(pattern, text))
