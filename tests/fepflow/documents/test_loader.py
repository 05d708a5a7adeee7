import gzip
import json

import pytest

from fepflow.documents.files import MAX_BYTES
from fepflow.documents.loader import parse_document, read_document
from fepflow.errors import InputError, dotted
from fepflow.json.values import MAX_DEPTH, loads


def problem_in(text, file="suite.yaml"):
    with pytest.raises(InputError) as caught:
        parse_document(text, file)
    (problem,) = caught.value.problems
    assert problem.file == file
    return problem


YAML_1_2 = [
    ("no", "no"),
    ("yes", "yes"),
    ("on", "on"),
    ("off", "off"),
    ("y", "y"),
    ("true", True),
    ("False", False),
    ("null", None),
    ("~", None),
    ("", None),
    ("5e-1", 0.5),
    ("1E3", 1000.0),
    ("012", 12),
    ("0o14", 12),
    ("0x1F", 31),
    ("12:30:45", "12:30:45"),
    ("2024-05-06", "2024-05-06"),
    ("2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z"),
    ("1.2.3", "1.2.3"),
    ("'5'", "5"),
    ("1_000", "1_000"),
    ("[1, a]", [1, "a"]),
    ("{input: Who is it?, model: local:letters}", {"input": "Who is it?", "model": "local:letters"}),
    ("[Why?]", ["Why?"]),
    ("<<", "<<"),
    ("=", "="),
]


class TestYaml:
    def test_a_value_is_what_yaml_1_2_says(self):
        for text, value in YAML_1_2:
            assert json.dumps(parse_document(f"key: {text}", "x.yaml").data) == json.dumps({"key": value})

    def test_an_empty_document_is_nothing(self):
        assert parse_document("# nothing yet\n", "x.yaml").data is None

    def test_keys_become_strings_as_in_json(self):
        data = parse_document("1: a\n2.50: b\ntrue: c\nnull: d\nno: e\n", "x.yaml").data
        assert data == {"1": "a", "2.50": "b", "true": "c", "null": "d", "no": "e"}

    @pytest.mark.parametrize("text", ["[a, b]: c", "{a: b}: c", "? [a]\n: b"])
    def test_a_key_that_is_no_scalar_is_refused(self, text):
        assert "is not valid YAML" in problem_in(text).message

    def test_keys_that_are_the_same_as_strings_are_a_duplicate(self):
        assert 'duplicate key "1"' in problem_in("1: a\n'1': b\n").message

    @pytest.mark.parametrize("text", [".nan", ".inf", "-.inf", "1e999"])
    def test_numbers_that_json_does_not_have_are_refused(self, text):
        assert "is not a JSON value" in problem_in(f"a: {text}").message

    @pytest.mark.parametrize("text", ["!!set {a, b}", "!!binary aGVsbG8="])
    def test_invalid_json_is_refused(self, text):
        problem = problem_in(f"key: {text}")
        assert "is not valid YAML" in problem.message

    @pytest.mark.parametrize(
        "text",
        [
            "!!python/object/apply:os.system ['true']",
            "!!python/name:os.system ''",
            "!whatever x",
            "!!python/object:object {}",
        ],
    )
    def test_no_object_is_made(self, text):
        assert "is not valid YAML" in problem_in(f"key: {text}").message

    @pytest.mark.parametrize("text", ["!!int", "!!int ''", "!!int '+'", "!!float", "!!float '-'"])
    def test_a_tag_of_a_number_without_digits_is_refused(self, text):
        assert "is not a number" in problem_in(f"key: {text}").message

    def test_a_duplicate_key_has_the_line_where_it_stands_again(self):
        problem = problem_in("name: a\ntarget: b\nname: c\n")
        assert problem.line == 3
        assert "name" in problem.message
        assert "duplicate key" in problem.message

    def test_a_duplicate_key_is_found_at_any_depth(self):
        assert problem_in("a:\n  - b: 1\n    c: 2\n    b: 3\n").line == 4

    def test_bad_syntax_has_its_line(self):
        problem = problem_in("name: a\ntarget: [1,\n  2\nchecks: b\n")
        assert problem.line in (3, 4)
        assert "is not valid YAML" in problem.message

    def test_a_question_changes_no_advice_about_a_bracket(self):
        problem = problem_in("cases: [{input: Who?, id: a]\nchecks: []\n")
        assert "is missing" in problem.message
        assert problem.advice

    def test_a_tab_is_named_in_the_message(self):
        assert problem_in("a:\n\tb: 1\n").line == 2

    def test_two_documents_in_one_file_are_refused(self):
        assert "document" in problem_in("a: 1\n---\nb: 2\n").message

    def test_an_unknown_alias_has_its_line(self):
        assert problem_in("a: 1\nb: *nothing\n").line == 2

    def test_aliases_and_merges_are_understood(self):
        text = "base: &base {timeout: 30s}\na:\n  <<: *base\n  attempts: 2\nb: *base\n"
        data = parse_document(text, "x.yaml").data
        assert data["a"] == {"timeout": "30s", "attempts": 2}
        assert data["b"] == {"timeout": "30s"}


class TestHostileYaml:
    def test_a_billion_laughs(self):
        lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        assert "expand to more than 1,000,000" in problem_in("\n".join(lines)).message

    def test_a_billion_laughs_of_mappings(self):
        lines = ["a0: &a0 {k: lol}"]
        lines += [f"a{n}: &a{n} {{{', '.join(f'k{i}: *a{n - 1}' for i in range(10))}}}" for n in range(1, 10)]
        assert "expand to more than" in problem_in("\n".join(lines)).message

    def test_merges_that_multiply(self):
        lines = ["a0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(100)) + "}"]
        lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 100)}]}}" for n in range(1, 6)]
        assert "expand to more than" in problem_in("\n".join(lines)).message

    def test_an_alias_inside_itself(self):
        problem = problem_in("x: 1\na: &a [1, *a]\n")
        assert problem.message == "an alias contains itself"
        assert problem.line == 2

    @pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 50_000, "? " * 50_000])
    def test_deep_nesting(self, text):
        assert f"nested deeper than {MAX_DEPTH} levels" in problem_in(text).message

    def test_the_deepest_allowed(self):
        assert parse_document("[" * MAX_DEPTH + "]" * MAX_DEPTH, "x.yaml").data

    def test_a_deep_chain_of_aliases(self):
        lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 300)]
        assert "nested deeper" in problem_in("\n".join(lines)).message

    @pytest.mark.parametrize("number", ["9" * 10_000, "-0x" + "f" * 4_000])
    def test_a_number_that_python_could_not_write(self, number):
        assert problem_in(f"a: {number}").message.endswith("a number has too many digits")


class TestJson:
    @pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
    def test_constants_that_json_does_not_have(self, constant):
        assert f"{constant} is not a JSON value" in problem_in(f'{{"a": {constant}}}', "x.json").message

    def test_a_number_that_overflows(self):
        assert "1e400 is too large" in problem_in('{"a": 1e400}', "x.json").message

    def test_a_duplicate_key(self):
        assert "the key 'a' appears twice" in problem_in('{"a": 1, "b": {"a": 1}, "a": 2}', "x.json").message

    def test_bad_syntax_has_its_line(self):
        assert problem_in('{"a": 1,\n "b": 2,\n}', "x.json").line == 3

    def test_deep_nesting(self):
        assert "nested deeper than 100 levels" in problem_in("[" * 100_000, "x.json").message
        assert "nested deeper than 100 levels" in problem_in("[" * 200 + "]" * 200, "x.json").message

    def test_loads_reads_what_json_has(self):
        assert loads('{"a": [1, 2.5, null, true, "\\u00e9"]}') == {"a": [1, 2.5, None, True, "é"]}


class TestFiles:
    def test_a_byte_order_mark_is_dropped(self, tmp_path):
        path = tmp_path / "suite.yaml"
        path.write_bytes(b"\xef\xbb\xbfname: refunds\n")
        assert read_document(path).data == {"name": "refunds"}

    def test_a_utf_16_file_is_refused_with_the_advice_to_save_it_as_utf_8(self, tmp_path):
        path = tmp_path / "suite.yaml"
        path.write_bytes("name: refunds\n".encode("utf-16"))
        with pytest.raises(InputError, match=r"suite\.yaml: is UTF-16, not UTF-8 \(save the file as UTF-8"):
            read_document(path)

    def test_a_byte_that_is_not_utf_8_has_its_line(self, tmp_path):
        path = tmp_path / "suite.yaml"
        path.write_bytes("a: 1\nb: é\n".encode("latin-1"))
        with pytest.raises(InputError, match=r":2: is not UTF-8: byte 0xe9 at offset 8"):
            read_document(path)

    def test_a_file_over_five_megabytes_is_not_even_read(self, tmp_path):
        path = tmp_path / "suite.yaml"
        with path.open("wb") as file:
            file.truncate(MAX_BYTES + 1)
        with pytest.raises(InputError, match="is larger than 5,000,000 bytes"):
            read_document(path)

    def test_a_missing_file_or_a_folder_is_an_error(self, tmp_path):
        with pytest.raises(InputError, match="there is no such file"):
            read_document(tmp_path / "none.yaml")
        with pytest.raises(InputError, match=r"is a folder \(name a file in it\)"):
            read_document(tmp_path)

    def test_a_binary_file(self, tmp_path):
        path = tmp_path / "suite.yaml"
        path.write_bytes(gzip.compress(b"name: refunds", mtime=0))
        with pytest.raises(InputError, match="is gzip data"):
            read_document(path)
        path.write_bytes(b"name: a\0b")
        with pytest.raises(InputError, match="is not valid YAML"):
            read_document(path)

    def test_messages_use_the_given_file_name(self, tmp_path):
        with pytest.raises(InputError, match=r"^cases\.yaml: there is no such file"):
            read_document(tmp_path / "x.yaml", "cases.yaml")


class TestPlaces:
    DOCUMENT = parse_document("name: a\nchecks:\n  - type: contains\n    arguments:\n      text: x\n", "suite.yaml")

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            (("name",), 1),
            (("checks", 0), 3),
            (("checks", 0, "arguments", "text"), 5),
            (("checks", 0, "arguments"), 4),
            (("checks", 0, "arguments", "phrases"), 4),
            (("checks", 7), 2),
            (("nothing", "at", "all"), 1),
            ((), 1),
        ],
    )
    def test_a_part_or_its_nearest_ancestor_has_a_line(self, path, line):
        assert self.DOCUMENT.line_of(path) == line

    def test_json_has_lines_too(self):
        document = parse_document('{\n"a": 1,\n\t"b": [1,\n2]}', "x.json")
        assert [document.line_of(path) for path in (("a",), ("b",), ("b", 1))] == [2, 3, 4]

    def test_a_place_is_written_as_users_write_it(self):
        assert dotted(("checks", 0, "arguments", "text")) == "checks[0].arguments.text"
        assert dotted(()) == ""
