"""What others wrote, through a real renderer: text comes out, and nothing that a browser or a reader could follow."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

import pytest
from markdown_it import MarkdownIt

from fepflow.text import escape_markdown, plain_markdown

HOSTILE = [
    "[click](https://evil.example/a) ![x](https://evil.example/i.png)",
    "<img src=x onerror=alert(1)><script>alert(2)</script><details open>",
    "https://evil.example http://evil.example www.evil.example WWW.evil.example me@evil.example mailto:me@evil.example",
    "<https://evil.example> <javascript:alert(1)> javascript:alert(1)",
    "a | b\n\n# heading\n\n- list\n\n1. one\n\n> quote\n\n---\n\n===",
    "```js\nalert(1)\n```\n\n~~~\nx\n~~~\n\n    indented",
    "`` ` `` ``` code ````",
    "`",
    "` and <b>",
    "\\` \\<b> \\",
    "[^1] note\n\n[^1]: foot\n\n[a]: https://evil.example\n[a] [a][]",
    ":smile: $x^2$ ~~gone~~ **big** _it_ ==mark== H~2~O x^2^",
    "&lt;b&gt; &#60;b&#62; &amp;lt;",
    "\u202egnp.exe \u2066x\u2069 \u200f\ufeff",
    "- [x] task",
    "+ plus * star",
]


@dataclass
class Page:
    """What HTML shows: its tags, and its text, that of `code` apart."""

    tags: set[str]
    text: str
    code: str


def rendered(markdown: str) -> Page:
    renderer = MarkdownIt("gfm-like", {"html": True, "linkify": False, "typographer": False})
    page = renderer.render(markdown)
    code = re.compile(r"<code>(.*?)</code>", re.DOTALL)
    text = re.sub(r"</?[a-z0-9]+>", "", code.sub("", page))
    assert "<" not in text, "a tag with attributes, or a comment"
    tags = set(re.findall(r"<([a-z0-9]+)>", page))
    return Page(tags, html.unescape(text).strip(), html.unescape("".join(code.findall(page))))


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_prose_stays_text(subtests: pytest.Subtests) -> None:
    for frame in ["{}", "# {}", "- {}", "> {}", "Gate: {}"]:
        for text in HOSTILE:
            with subtests.test(text=text, frame=frame):
                page = rendered(frame.format(escape_markdown(text)))
                assert page.tags <= {"p", "h1", "ul", "li", "blockquote"}
                assert not page.code
                # What GitHub's kind of markdown makes links of, after it has taken escapes away.
                assert not re.search(r"https?://\w|www\.\w|\w@\w", page.text, re.IGNORECASE)
                shown = page.text.replace("\u2060", "").removeprefix("Gate: ")
                assert shown == re.sub(
                    r"[\u200f\u202e\u2066\u2069\ufeff]", lambda found: f"\\u{ord(found[0]):04x}", one_line(text)
                )


LOOK_ALIKES = str.maketrans("\u02cb\u2217\u223c\u02cd", "`*~_", "\u2060")


@pytest.mark.parametrize(
    "text", [*HOSTILE, "__init__ _x_ my_tool *a* **b** 5*3 ~~c~~ ~d~", "a_b", "1. one", "- x", "#"]
)
def test_plain_text_looks_the_same_with_and_without_markdown(text: str) -> None:
    shown = plain_markdown(text)
    page = rendered(shown)
    assert page.tags <= {"p"}
    assert not page.code
    assert page.text == shown.strip(), "what is rendered is what is there"
    assert not re.search(r"https?://\w|www\.\w|\w@\w", page.text, re.IGNORECASE)
    escaped = re.sub(r"[\u200f\u202e\u2066\u2069\ufeff]", lambda found: f"\\u{ord(found[0]):04x}", one_line(text))
    assert page.text.translate(LOOK_ALIKES) == escaped


@pytest.mark.parametrize("text", ["", "plain", "1,200", "Who owes most?", "a * b", "my_tool", "~5 s", "3.5", "(a) b"])
def test_what_no_markdown_would_change_stays_as_it_is(text: str) -> None:
    assert plain_markdown(text) == text


def test_prose_is_cut() -> None:
    assert escape_markdown("x" * 5_000) == "x" * 999 + "…"
