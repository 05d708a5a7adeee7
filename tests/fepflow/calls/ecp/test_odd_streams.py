"""What agents write to stdout and stderr, in odd pieces, in mass and between their answers, is read all the same."""

from __future__ import annotations

import pytest

from .bad_steps import at_bad
from .conftest import Open, metadata_of, run, said


async def test_an_agent_that_writes_much_before_it_reads_is_read_meanwhile(open_agent: Open) -> None:
    _, client = open_agent(
        "def initialize(request):\n    answer(request, {})\n    print('noise ' * 100_000, flush=True)\n"
    )
    output = await run(client, "x" * 300_000)
    assert said(output) == ["echo: " + "x" * 300_000]


async def test_a_megabyte_on_stderr_keeps_nobody_waiting_and_its_end_is_kept(open_agent: Open) -> None:
    _, client = open_agent(
        at_bad("sys.stderr.write('e' * 1_000_000 + 'end'); sys.stderr.flush(); answer(request, done('a'))")
    )
    output = await run(client, "bad", "bad")
    assert said(output) == ["a", "a"]
    tail = metadata_of(output)["log_tail"]["stderr"]
    assert 0 < len(tail) <= 4_000
    assert set(tail) <= set("end")


NOISE = """
    print("Loading model...")
    say({"level": "info", "id": request["id"], "message": "thinking"})
    say({"jsonrpc": "2.0", "method": "log", "id": request["id"], "params": {}})
    say([1, 2]); say(3); print(); print("{broken"); os.write(1, b"\\xff\\xfe\\n")
    answer(request, done("right"))
    answer(request, done("wrong"))"""


async def test_what_is_no_answer_goes_to_the_log_and_a_second_answer_too(open_agent: Open) -> None:
    _, client = open_agent(f"def step(request):{NOISE}")
    output = await run(client, "one", "two")
    assert said(output) == ["right", "right"]
    log = metadata_of(output)["log_tail"]["stdout"]
    assert log.startswith("Loading model...\n")
    assert '"thinking"' in log
    assert '"wrong"' in log, "the second answer to the first step"


async def test_an_answer_that_comes_in_pieces_or_without_a_line_end_is_read(open_agent: Open) -> None:
    code = at_bad("""text = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": done("whole")})
    for character in text:
        os.write(1, character.encode())
    sys.exit()""")
    _, client = open_agent(code)
    assert said(await run(client, "good", "bad")) == ["fine", "whole"]


async def test_a_large_answer_within_the_limit_is_read(open_agent: Open) -> None:
    _, client = open_agent(at_bad("answer(request, done('x' * 3_000_000))"))
    assert said(await run(client, "bad")) == ["x" * 3_000_000]


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX", "LANG": "C"}])
async def test_text_is_utf_8_both_ways_whatever_the_locale(
    open_agent: Open, monkeypatch: pytest.MonkeyPatch, locale: dict[str, str]
) -> None:
    for name in ("LC_ALL", "LANG", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    text = "Grüße, 日本 🎉 \u2028 \x00 \ud800"
    code = "def say(message):\n    print(json.dumps(message, ensure_ascii='ud800' in repr(message)), flush=True)\n"
    _, client = open_agent(code)
    assert said(await run(client, text, "naïve 🎉")) == [f"echo: {text}", "echo: naïve 🎉"]
