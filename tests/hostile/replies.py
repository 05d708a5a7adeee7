"""What hostile agents reply, a line each. A new one joins by adding its line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from encodings.aliases import aliases
from functools import partial

from .attack import ANSWERED, Attack, http

MOST = 9_900_000
"""Bytes that just fit under the limit of 10 MB."""

JSON = "application/json"


def said(value: str) -> bytes:
    """An answer that is this JSON."""
    return http(b'{"answer":' + value.encode("utf-8", "surrogatepass") + b"}")


def filled(start: str, again: str, end: str, size: int = MOST) -> bytes:
    """An answer of JSON that says the same again and again."""
    return said(start + again * ((size - len(start) - len(end)) // len(again.encode("utf-8", "surrogatepass"))) + end)


def keys(count: int, twice: str = "") -> bytes:
    return said("{" + ",".join(f'"key {number}":0' for number in range(count)) + twice + "}")


def compressed(body: bytes, encoding: str = "gzip") -> bytes:
    return http(gzip.compress(body, 1) if encoding == "gzip" else zlib.compress(body, 1), Content_Encoding=encoding)


def encoded(body: bytes, encoding: str = "gzip") -> bytes:
    """A body that is said to be encoded so."""
    return http(body, Content_Encoding=encoding)


WELL = b'{"answer":"fine"}'
TOO_MANY = "more than 200,000 JSON values"

LARGE = [
    Attack("a text of 9.9 MB", lambda: filled('"', "x", '"')),
    Attack("a text of words", lambda: filled('"', "fine word ", '"')),
    Attack("a text of line ends", lambda: filled('"', "\\n", '"')),
    Attack("a text of escapes", lambda: filled('"', "\\u00e9", '"')),
    Attack("a text of halves of characters", lambda: filled('"', "\\ud800", '"')),
    Attack("a text of NUL", lambda: filled('"', "\\u0000", '"')),
    Attack("a text of quotes", lambda: filled('"', '\\"', '"')),
    Attack("a text of backslashes", lambda: filled('"', "\\\\", '"')),
    Attack("a text of commas", lambda: filled('"', ",", '"')),
    Attack("a text that looks like JSON", lambda: filled('"', "[{},", '"')),
    Attack("a text of beyond the basic plane", lambda: filled('"', "\U0001d4b3", '"')),
    Attack("a text of letters that grow when folded", lambda: filled('"', "ΐ", '"')),
    Attack("lists", lambda: filled("[", "[],", "[]]"), TOO_MANY),
    Attack("objects", lambda: filled("[", "{},", "{}]"), TOO_MANY),
    Attack("numbers", lambda: filled("[", "0,", "0]"), TOO_MANY),
    Attack("fractions", lambda: filled("[", "1.5,", "0]"), TOO_MANY),
    Attack("exponents", lambda: filled("[", "1e300,", "0]"), TOO_MANY),
    Attack("empty texts", lambda: filled("[", '"",', '""]'), TOO_MANY),
    Attack("nulls", lambda: filled("[", "null,", "null]"), TOO_MANY),
    Attack("objects in objects", lambda: filled("[", '{"a":{"a":0}},', "0]"), TOO_MANY),
    Attack("a list of members", lambda: keys(600_000), TOO_MANY),
    Attack("lists, just few enough", lambda: filled("[", "[],", "[]]", 290_000)),
    Attack("numbers, just few enough", lambda: filled("[", "0,", "0]", 190_000)),
    Attack("long texts, just few enough", lambda: filled("[", '"' + "y" * 60 + '",', "0]", 9_000_000)),
    Attack("members, just few enough", lambda: keys(90_000)),
    Attack("objects, just few enough", lambda: filled("[", '{"name":"search"},', "0]", 1_700_000)),
    Attack("calls of tools", lambda: filled("[", '{"name":"search","arguments":"{}"},', '{"name":"x"}]', 1_900_000)),
    Attack("a call with many arguments", lambda: said('[{"name":"search","arguments":' + "[" * 90 + "]" * 90 + "}]")),
    Attack("members of which the last two are the same", lambda: keys(45_000, ',"key 44999":1'), "appears twice"),
    Attack("members of which the first comes again", lambda: keys(90_000, ',"key 0":1'), "appears twice"),
    Attack("one member again and again", lambda: filled("{", '"a":0,', '"a":0}', 500_000), "appears twice"),
    Attack("a name of 9.9 MB that appears twice", lambda: filled('{"', "k", '":0,"a":0,"a":1}'), "appears twice"),
    Attack(
        "a name of 5 MB, twice", lambda: said("{" + ('"' + "k" * 4_900_000 + '":0,') * 2 + '"a":0}'), "appears twice"
    ),
    Attack("a name of 9.9 MB", lambda: filled('{"', "k", '":0}')),
    Attack("a whole number of 4,000 digits", lambda: said("9" * 4_000)),
    Attack("a whole number of 400 digits, negative", lambda: said("-" + "9" * 400)),
    Attack("a whole number of 5,000 digits", lambda: said("9" * 5_000), "too many digits"),
    Attack("a whole number of 9.9 MB", lambda: said("9" * MOST), "too many digits"),
    Attack("a fraction of 9.9 MB", lambda: said("0." + "9" * MOST)),
    Attack("a number of 9.9 MB that overflows", lambda: said("9" * MOST + ".5"), "is too large for a number"),
    Attack("an exponent of 9 MB", lambda: said("1e" + "9" * 9_000_000), "is too large for a number"),
    Attack("a small exponent of 9 MB", lambda: said("1e-" + "9" * 9_000_000)),
    Attack("text of 9.9 MB that is no JSON", lambda: http(b"x" * MOST), "not valid JSON"),
    Attack("words that are no JSON", lambda: http(b"a " * (MOST // 2)), "not valid JSON"),
    Attack("spaces before what is no JSON", lambda: http(b" " * MOST + b"x"), "not valid JSON"),
    Attack("HTML of 9.9 MB", lambda: http(b"<p>" * (MOST // 3), "text/html"), "the answer is HTML"),
    Attack("bytes that are no UTF-8", lambda: http(b"\xff" * MOST), "is not utf-8"),
    Attack("more than 10 MB", lambda: http(b'"' + b"x" * 11_000_000 + b'"'), "larger than 10,000,000 bytes"),
]

DEEP = [
    Attack(f"{depth:,} levels of {name}", partial(said, pair[0] * depth + pair[1] * depth), outcome)
    for name, pair in {"lists": ("[", "]"), "objects": ('{"a":[', "]}")}.items()
    for depth, outcome in {40: ANSWERED, 99: ANSWERED, 990: "nested deeper", 90_000: "nested deeper"}.items()
    if name == "lists" or depth != 99
] + [
    Attack("a million brackets that are never closed", lambda: said("[" * 1_000_000), ""),
    Attack("a list of deep lists", lambda: said("[" + ",".join(["[" * 90 + "]" * 90] * 500) + "]")),
]

ODD = [
    Attack(f"{text[:30]!a} for an answer", partial(said, text), outcome)
    for texts, outcome in {
        ("1e308", "-1e308", "1e-400", "-0", "0.1e1", "1E+2", "0", "-1", "true", "null", '""', "[]", "{}"): ANSWERED,
        ('"\\ud800"', '"\\u0000"', '"\\ufeff"', '"\\u202e"', '"\\u001b[2J"', '"=1+1"', '"<script>"'): ANSWERED,
        ('"$.test_case.expected"', '"\\\\$."', '["$.x"]', '"{{$.output}}"', '"${HOME}"', '{"$float":"NaN"}'): ANSWERED,
        ('{"expression":"$.x"}', '{"error":{"message":"x"}}', '{"":0}', '{"__proto__":0}', '{"\\u0000":0}'): ANSWERED,
        ("NaN", "Infinity", "-Infinity", "nan"): "not valid JSON",
        ("1e400", "-1e309", "1" * 400 + ".0"): "too large for a number",
        ("01", "+1", ".5", "1.", "0x1", "1_000", "'a'", "{a:1}", "[1,]", '{"a":1,}', "//", "tru", ""): "not valid JSON",
        ('"\\x41"', '"a\nb"', '"a\tb"', '"\\u12"', '"', "[", "{", '{"a"', '{"a":', "]", "}", "1 2"): "not valid JSON",
        ("\u0661", "\u00a01", "\u20281"): "not valid JSON",
    }.items()
    for text in texts
]

ENCODED = [
    Attack("a bomb in gzip", lambda: compressed(b'{"answer":"' + b"x" * 200_000_000 + b'"}'), "larger than 10,000,000"),
    Attack("a bomb in deflate", lambda: compressed(b" " * 100_000_000, "deflate"), "larger than 10,000,000"),
    Attack("9.9 MB of spaces in gzip", lambda: compressed(b'{"answer":"fine"}' + b" " * 9_900_000)),
    Attack("a text of 9.9 MB in gzip", lambda: compressed(b'{"answer":"' + b"fine " * 1_980_000 + b'"}')),
    Attack("gzip of 400,000 empty parts", lambda: encoded(gzip.compress(b"") * 400_000), "parts"),
    Attack("gzip in two parts", lambda: encoded(gzip.compress(b'{"answer":') + gzip.compress(b'"fine"}'))),
    Attack("gzip of a byte each", lambda: encoded(gzip.compress(b" ") * 5_000), "parts"),
    Attack("gzip that is cut", lambda: encoded(gzip.compress(WELL)[:-9]), "too early"),
    Attack("gzip that is none", lambda: encoded(b"hello"), "damaged"),
    Attack("deflate that is none", lambda: encoded(b"\xff" * 99, "deflate"), "damaged"),
    Attack("deflate and then rubbish", lambda: encoded(zlib.compress(WELL) + b"x" * 900_000, "deflate")),
    Attack("an encoding nobody asked for", lambda: encoded(b"x", "br"), "is encoded as"),
    Attack("an encoding with a long name", lambda: encoded(b"x", "x" * 8_000), "is encoded as"),
    Attack("gzip in gzip", lambda: encoded(b"x", "gzip, gzip"), "is encoded as"),
    Attack("a charset with a long name", lambda: http(b"{}", f"{JSON}; charset={'y' * 8_000}"), "unknown charset"),
    Attack("a type with 4,000 parameters", lambda: http(b'{"answer":1}', JSON + ";a" * 4_000)),
    Attack("a type of quotes", lambda: http(b'{"answer":1}', f'{JSON}; charset="' + '\\"' * 3_900), ""),
    Attack("a type of star parameters", lambda: http(WELL, JSON + "".join(f";a*{n}*=x" for n in range(900))), ""),
    Attack("no type", lambda: http(b'{"answer":1}', "")),
]


def in_charset(charset: str) -> Attack:
    """9 MB in a charset that Python knows."""
    kind = f"text/plain; charset={charset}"
    return Attack(f"9 MB in the charset {charset}", lambda: http(b"8" * 9_000_000, kind), "")


CHARSETS = [in_charset(charset) for charset in sorted(set(aliases.values()))]

DATES = ("Fri, 31 Dec 99999999999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359")


def waiting(wait: str, status: str) -> Attack:
    """A refusal that asks for patience."""
    return Attack(f"{status}, Retry-After: {wait[:40]}", lambda: http(b"no", status=status, Retry_After=wait), "HTTP")


ODD_WAITS = ("9" * 4_400, "-1", "1e9", "inf", "nan", "\u0663", "", " ", ", ,", "Mon", "0" * 4_400, "1 1 1 1 1 1 1 1")
WAITS = [waiting(wait, status) for status in ("503 No", "429 No") for wait in (*DATES, *ODD_WAITS)]


def refusing(status: int, name: str, body: bytes) -> Attack:
    """A refusal with many words."""
    return Attack(
        f"{status} and {name}", lambda: http(body * 1_500_000, "text/plain", f"{status} Oh"), f"HTTP {status}"
    )


WORDS = {"words": b"word ", "line ends": b"\r\n\n", "control characters": b"\x1b[2J\x00\x9b"}
ERRORS = [refusing(status, name, body) for status in (400, 401, 500, 503, 599) for name, body in WORDS.items()] + [
    Attack("a reason of 8,000 characters", lambda: http(b"", status="500 " + "why " * 2_000), "HTTP 500"),
    Attack("9 MB of text where JSON is asked for", lambda: http(b"fine\n" * 1_800_000, "text/plain"), "not valid JSON"),
]


def all_replies() -> Iterator[Attack]:
    """Every one."""
    for table in (LARGE, DEEP, ODD, ENCODED, CHARSETS, WAITS, ERRORS):
        yield from table
