import pytest

from fepflow.errors import JSONPathError
from fepflow.jsonpath.path import TextTemplate, compile_path, compile_template

DOCUMENT = {"test_case": {"input": "why?", "tags": ["a", "b"]}, "output": {"value": {"answer": 42}}}


def test_paths_are_replaced_and_everything_else_stays():
    for template, rendered in [
        ("$.test_case.input", "why?"),
        ("\\$.test_case.input", "$.test_case.input"),
        ("$", "$"),
        ("$[0]", "$[0]"),
        (" $.a", " $.a"),
        ("say $.test_case.input", "say $.test_case.input"),
        (5, 5),
        (None, None),
        ([], []),
        ({}, {}),
        ({"question": "$.test_case.input", "n": 1}, {"question": "why?", "n": 1}),
        ({"a": "\\$.b", "c": "$.test_case.input"}, {"a": "$.b", "c": "why?"}),
        (["$.test_case.input", "x"], ["why?", "x"]),
        ({"m": [{"role": "user", "content": "$.test_case.input"}]}, {"m": [{"role": "user", "content": "why?"}]}),
        ({"a": "$.test_case.input", "b": {"c": "$.output.value.answer"}}, {"a": "why?", "b": {"c": 42}}),
        ({"$.test_case.input": 1}, {"$.test_case.input": 1}),
        ("$.test_case.tags[*]", ["a", "b"]),
    ]:
        assert compile_template(template).render(DOCUMENT) == rendered


@pytest.mark.parametrize("template", ["$.nothing", {"a": "$.nothing"}, {"a": {"b": ["$.nothing"]}}])
def test_a_path_that_finds_nothing_is_an_error(template):
    with pytest.raises(JSONPathError, match="nothing"):
        compile_template(template).render(DOCUMENT)


def test_an_invalid_path_is_found_when_it_is_compiled():
    with pytest.raises(JSONPathError, match="not a valid JSONPath"):
        compile_template({"a": [{"b": "$.["}]})


@pytest.mark.parametrize(
    "value", [{"a": {"b": "$.output.value.answer"}, "keep": {"x": [1]}}, {"a": "$.test_case.input"}]
)
def test_one_rendering_leaves_no_trace_in_the_next(value):
    template = compile_template(value)
    first = template.render(DOCUMENT)
    other = template.render({"test_case": {"input": "other"}, "output": {"value": {"answer": 1}}})
    assert first == compile_template(value).render(DOCUMENT)
    assert other != first


def test_what_a_path_finds_is_not_looked_at_again():
    assert compile_template(["$.a"]).render({"a": "$.b", "b": 1}) == ["$.b"]


def test_members_that_are_compiled_already_take_their_place():
    template = compile_template({"a": "$.output.[", "b": ["$.test_case.input"]}, {"a": compile_path("$.output.value")})
    assert template.render(DOCUMENT) == {"a": {"answer": 42}, "b": ["why?"]}


def test_placeholders_in_a_text_are_filled():
    for text, filled in [
        ("", ""),
        ("no placeholder", "no placeholder"),
        ("{{$.test_case.input}}", "why?"),
        ("{{ $.test_case.input }}\n{{$.test_case.input}}!", "why?\nwhy?!"),
        ("{{$.output.value.answer}} of {{$.test_case.tags}}", '42 of ["a", "b"]'),
        ("{{$.test_case['input']}}", "why?"),
        ("{{input}} {$.test_case.input} {{}} }}", "{{input}} {$.test_case.input} {{}} }}"),
        ("{{\\$.test_case.input}}", "{{$.test_case.input}}"),
        ("{{$.test_case.tags[*]}}", '["a", "b"]'),
    ]:
        assert TextTemplate(text).resolve(DOCUMENT) == filled


def test_what_fills_a_placeholder_is_not_looked_at_again():
    assert TextTemplate("{{$.a}}{{$.b}}").resolve({"a": "{{$.b}}", "b": "$.a"}) == "{{$.b}}$.a"


@pytest.mark.parametrize("text", ["{{$.a", "{{$.a}", "{{$.a.[}}", "{{$.}} {{$.a}}"])
def test_a_placeholder_that_is_not_closed_or_no_path_is_refused(text):
    with pytest.raises(JSONPathError):
        TextTemplate(text)


def test_a_placeholder_that_finds_nothing_is_an_error():
    with pytest.raises(JSONPathError, match="found nothing"):
        TextTemplate("a {{$.nothing}}").resolve(DOCUMENT)
