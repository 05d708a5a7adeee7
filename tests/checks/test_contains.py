import pytest

from fepflow.checks.contains import ContainsCheck

TEXT = "Paris is the capital of France"


def test_all_phrases_have_to_be_there_or_with_negate_none(passed):
    for phrases, all_there, none_there in [
        (["Paris", "France"], True, False),
        (["Paris", "Spain"], False, False),
        (["Rome", "Spain"], False, True),
        ("Paris", True, False),
        ("Rome", False, True),
        (["paris"], False, True),
    ]:
        assert passed("contains", text=TEXT, phrases=phrases) is all_there
        assert passed("contains", text=TEXT, phrases=phrases, negate=True) is none_there


@pytest.mark.parametrize(
    ("phrases", "one_there", "one_missing"),
    [(["Paris", "France"], True, False), (["Paris", "Spain"], True, True), (["Rome", "Spain"], False, True)],
)
def test_without_match_all_one_phrase_decides(passed, phrases, one_there, one_missing):
    assert passed("contains", text=TEXT, phrases=phrases, match_all=False) is one_there
    assert passed("contains", text=TEXT, phrases=phrases, match_all=False, negate=True) is one_missing


def test_one_string_is_one_phrase_and_not_its_letters(passed):
    assert not passed("contains", text="siraP", phrases="Paris")


def test_case_is_folded_only_on_request(passed):
    assert passed("contains", text="DIE STRASSE", phrases=["straße"], case_sensitive=False)
    assert not passed("contains", text="DIE STRASSE", phrases=["straße"])


def test_a_text_argument_of_another_type_is_an_error_not_a_fail(refused):
    for answer in [None, 5, True, ["Paris"], {"answer": "Paris"}]:
        message = refused("contains", answer=answer, text="$.output.value", phrases=["Paris"])
        assert "text: must be a text" in message
        assert "Paris" not in message


def test_phrases_are_texts_and_at_least_one(refused):
    for phrases in [[], [1], None, 5, {"a": "b"}, ["Paris", None]]:
        assert "phrases" in refused("contains", text=TEXT, phrases=phrases)


def test_phrases_of_another_type_are_an_error_with_the_types_allowed(refused):
    assert "phrases: must be a text or a list" in refused("contains", text=TEXT, phrases=5)


def test_a_phrase_of_another_type_is_reported_with_its_path(refused):
    assert "phrases[1]: must be a text" in refused("contains", text=TEXT, phrases=["Paris", 1])


def test_phrases_come_from_a_path_as_a_list_or_as_one_text(passed):
    assert passed("contains", text=TEXT, phrases="$.test_case.expected", reference=["Paris", "France"])
    assert passed("contains", text=TEXT, phrases="$.test_case.expected", reference="Paris")


def test_paths_may_stand_inside_the_list(passed):
    assert passed("contains", text=TEXT, phrases=["$.test_case.expected", "capital"], reference="Paris")
    assert not passed("contains", text=TEXT, phrases=["$.test_case.expected", "capital"], reference="Rome")


def test_an_escaped_path_inside_the_list_is_a_phrase(passed):
    assert passed("contains", text="costs $.99", phrases=["\\$.99"])


def test_a_check_can_be_called_directly():
    assert ContainsCheck(text=TEXT, phrases="Paris")() == {"passed": True}
