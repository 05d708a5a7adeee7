from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fepflow.documents.loader import dump_yaml, parse_document

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_is_written_is_read_again_as_it_was(value: dict[str, Any]) -> None:
    assert parse_document(dump_yaml(value), "written.yaml").data == value


def test_a_text_stays_one() -> None:
    texts = [
        "no",
        "Off",
        "null",
        "~",
        "1.0",
        "5e-1",
        "2025-01-15",
        "a: b",
        "# x",
        " x ",
        "'",
        "x\ny",
        "",
        "-",
        "=",
        "<<",
    ]
    for text in texts:
        value = {"key": text, text or "empty": [text]}
        assert parse_document(dump_yaml(value), "written.yaml").data == value


def test_it_reads_well() -> None:
    assert dump_yaml({"id": "a/b", "results": [{"acc": {"value": 0.5, "stderr": 1e-05}}]}) == (
        "id: a/b\nresults:\n  - acc:\n      value: 0.5\n      stderr: 1e-05\n"
    )


def test_half_a_character_becomes_its_escape() -> None:
    assert parse_document(dump_yaml({"a": "x\ud83d"}), "written.yaml").data == {"a": "x\\ud83d"}
