import re

import pytest

from fepflow.checks.regex import RegexCheck


def test_a_pattern_is_searched_as_python_does(passed):
    for pattern, text, found in [
        ("^[A-Z][a-z]+$", "Paris", True),
        ("aris", "Paris", True),
        ("^aris", "Paris", False),
        ("end$", "the end\n", True),
        (r"\w+", "日本", True),
        (r"(?<=a)b", "ab", True),
        (r"(a)\1", "aa", True),
    ]:
        assert passed("regex", text=text, pattern=pattern) is found
        assert passed("regex", text=text, pattern=pattern, negate=True) is not found


@pytest.mark.parametrize(
    ("flag", "python", "pattern", "text"),
    [
        ("case_insensitive", re.IGNORECASE, "^paris$", "PARIS"),
        ("multiline", re.MULTILINE, "^ERROR:", "fine\nERROR: no"),
        ("dot_all", re.DOTALL, "a.b", "a\nb"),
    ],
)
def test_each_flag_does_its_work_and_is_off_by_default(passed, flag, python, pattern, text):
    assert not passed("regex", text=text, pattern=pattern)
    assert not passed("regex", text=text, pattern=pattern, flags={flag: False})
    assert passed("regex", text=text, pattern=pattern, flags={flag: True})
    assert passed("regex", text=text, pattern=pattern, flags=int(python))


def test_pythons_flags_may_be_given_as_they_are():
    assert RegexCheck(text="PARIS", pattern="paris", flags=re.IGNORECASE)() == {"passed": True}


def test_flags_may_be_combined(passed):
    flags = {"case_insensitive": True, "multiline": True}
    assert passed("regex", text="fine\nERROR", pattern="^error$", flags=flags)
    assert passed("regex", text="fine\nERROR", pattern="^error$", flags=int(re.I | re.M))


def test_flags_may_be_read_from_the_test_case(passed):
    arguments = {"text": "PARIS", "pattern": "paris", "flags": {"case_insensitive": "$.test_case.expected"}}
    assert passed("regex", reference=True, **arguments)
    assert not passed("regex", reference=False, **arguments)


def test_invalid_flags_are_refused(refused):
    for flags in [{"case_insensitve": True}, "i", [1], True, {"multiline": 7}, 1 << 40, -1]:
        assert "flags" in refused("regex", text="a", pattern="a", flags=flags)


def test_an_invalid_pattern_is_refused_with_its_position(refused):
    for pattern in ["(", "[a", "*a", "(?P<n>a", "a{2,1}", r"\9"]:
        message = refused("regex", text="a", pattern=pattern)
        assert "is not a regular expression" in message
        assert "at position" in message


def test_a_pattern_and_flags_that_contradict_each_other_are_a_mistake_of_the_arguments(refused):
    assert "is not a regular expression" in refused("regex", text="a", pattern="a", flags=int(re.A | re.U))
    assert "is not a regular expression" in refused("regex", text="a", pattern="(?u)a", flags=int(re.A))


@pytest.mark.parametrize("flag", [re.LOCALE, re.DEBUG])
def test_flags_that_are_not_for_texts_or_that_print_are_refused(refused, flag):
    assert "flags: must combine Python's flags" in refused("regex", text="a", pattern="a", flags=int(flag))


def test_a_long_pattern_is_refused_unseen(refused):
    assert "1000 characters" in refused("regex", text="a", pattern="a" * 1001)


@pytest.mark.parametrize("answer", [None, 5, ["a"], {"a": 1}])
def test_a_text_argument_of_another_type_is_an_error_not_a_fail(refused, answer):
    assert "text: must be a text" in refused("regex", answer=answer, text="$.output.value", pattern="a")


def test_a_pattern_may_come_from_the_test_case_and_be_wrong_only_there(passed, refused):
    assert passed("regex", text="abc", pattern="$.test_case.expected", reference="b.")
    assert "is not a regular expression" in refused("regex", text="a", pattern="$.test_case.expected", reference="(")
    assert "pattern: must not be empty" in refused("regex", text="a", pattern="$.test_case.expected", reference="")


def test_an_escaped_pattern_is_a_pattern(passed):
    assert passed("regex", text="a\n.b", pattern="\\$.this", negate=True)


def test_a_check_can_be_called_directly():
    assert RegexCheck(text="Paris", pattern="^P")() == {"passed": True}
