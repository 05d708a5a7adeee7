"""The pictures of the page about verdicts are drawn from what the code computes, and say what its words say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "verdict.md").read_text(encoding="utf-8")
DRAWN = runpy.run_path(str(DOCS / "pictures.py"))


def test_the_pictures_are_what_the_code_computes() -> None:
    assert DRAWN["rewritten"](PAGE) == PAGE, "stale: python docs/pictures.py"


def test_the_readme_quotes_the_interval_that_its_picture_shows() -> None:
    low, high = DRAWN["share"](80, 100)[0], DRAWN["share"](90, 100)[2]
    quoted = f"{80 / 90:.4f} (95 % interval {low:.4f} to {high:.4f}, n = 90 of 100: 10 errors)"
    assert quoted in (DOCS.parent / "README.md").read_text(encoding="utf-8")
    terminal = (DOCS / "pictures" / "terminal.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert quoted in terminal


def test_each_outcome_is_in_the_first_picture() -> None:
    outcomes = [line.split()[-1] for line in DRAWN["interval"]().splitlines()[1:]]
    assert outcomes == ["pass", "inconclusive", "fail"]


def test_each_idea_comes_to_what_its_words_say() -> None:
    last = {
        name: DRAWN[name]().splitlines()[-1] for name in ("clusters", "missing", "repeats", "matched", "drift", "judge")
    }
    assert all(last[name].endswith("inconclusive") for name in last if name not in ("drift", "judge"))
    assert last["judge"].endswith("fail")
    assert last["drift"].endswith("ALARM, from 365 on")
    too_sure = [
        line for name in ("clusters", "repeats", "judge") for line in DRAWN[name]().splitlines() if ", but " in line
    ]
    assert [line.split("  ")[-1].strip() for line in too_sure] == [*["pass, but too sure"] * 2, "pass, but wrong"]


def test_an_agent_is_looked_at_until_it_is_clear() -> None:
    outcomes = [line.split()[-1] for line in DRAWN["looks"]().splitlines()[1:]]
    assert outcomes == ["inconclusive"] * 3 + ["pass"]


def test_flips_are_marked_where_they_are() -> None:
    base, new, marks = (re.sub(r"^(base|new) {2,3}| {6}", "", line) for line in DRAWN["matched"]().splitlines()[:3])
    flips = {at: mark for at, mark in enumerate(marks[:20]) if mark in "↑↓"}
    assert flips == {at: "↑" if new[at] == "●" else "↓" for at in range(20) if base[at] != new[at]}
