from pathlib import Path

import pytest

from fepflow.analysis.labels import read_labels
from fepflow.checks.models.judge_spec import JudgeSpec
from fepflow.errors import InputError, UserError

IDS = {"a", "b", "c", "7"}


def judge(name="judge", **fields):
    return JudgeSpec(name, "openai/any", {}, 1, "j" * 64, "r" * 64, fields or {"passed": ("boolean", ())})


JUDGE = judge()
SCORED = judge("scored", passed=("boolean", ()), score=("number", ()), tone=("word", ("rude", "kind")))


@pytest.fixture
def file(tmp_path: Path):
    def write(text, name="labels.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def mistakes(file):
    """The mistakes of a file, without its path."""

    def mistakes(text, judges=(JUDGE,), **options):
        path = file(text)
        with pytest.raises(InputError) as raised:
            read_labels(path, judges, IDS, **options)
        return [str(problem).removeprefix(f"{path}") for problem in raised.value.problems]

    return mistakes


@pytest.mark.parametrize("column", ["id", "case_id"])
def test_boolean_labels_are_read_in_all_spellings(file, column):
    words = ["yes", "No", "TRUE", "false", "1", "0", "pass", " fail "]
    ids = [f"c{number}" for number in range(len(words))]
    text = f"{column},label\n" + "".join(f"{name},{word}\n" for name, word in zip(ids, words, strict=True))
    found = read_labels(file(text), [judge()], ids)
    assert (found.field, found.kind) == ("passed", "boolean")
    assert list(found.labels.values()) == [True, False] * 4


def test_numbers_and_words_are_read_as_the_member_has_them(file):
    scores = read_labels(file("id,label\na,4\nb, 2.5\n"), [SCORED], IDS, field="score")
    assert (scores.labels, scores.kind) == ({"a": 4.0, "b": 2.5}, "number")
    tones = read_labels(file("id,label\na,kind\n"), [SCORED], IDS, field="tone")
    assert (tones.labels, tones.kind) == ({"a": "kind"}, "word")


def test_other_formats_have_ids_and_labels_that_are_no_texts(file):
    found = read_labels(file('{"id": 7, "label": true}\n{"id": "a", "label": 0}\n', "labels.jsonl"), [judge()], IDS)
    assert found.labels == {"7": True, "a": False}


def test_a_row_that_is_not_labelled_yet_is_left_out(file):
    assert read_labels(file("id,label,note\na,yes,x\nb,,\n"), [judge()], IDS).labels == {"a": True}


def test_labels_of_one_field_are_no_labels_of_another(file):
    path = file("id,label,field\na,yes,passed\na,4,score\nb,5,score\n")
    assert read_labels(path, [SCORED], IDS).labels == {"a": True}
    assert read_labels(path, [SCORED], IDS, field="score").labels == {"a": 4.0, "b": 5.0}
    with pytest.raises(InputError, match="holds no label"):
        read_labels(path, [SCORED], IDS, field="tone")
    only = read_labels(file("id,label,field\na,4,score\n"), [SCORED], IDS)
    assert (only.field, only.labels) == ("score", {"a": 4.0})


def test_a_column_says_which_cases_a_draw_has_shown(file):
    assert read_labels(file("id,label\na,yes\n"), [SCORED], IDS).as_drawn is None
    path = file("id,label,field,draw\na,yes,passed,d1\nb,yes,passed,\nc,4,score,d1\nb,,passed,d1\n")
    assert read_labels(path, [SCORED], IDS).as_drawn == {"a"}


def test_a_word_that_a_spreadsheet_would_take_for_a_formula_is_read(file):
    signs = judge("signs", sign=("word", ("+", "-", "'+")))
    found = read_labels(file("id,label\na,'-\nb,+\nc,'+\n"), [signs], IDS)
    assert found.labels == {"a": "-", "b": "+", "c": "'+"}


def test_every_error_has_its_line(mistakes):
    assert mistakes("id,label\na,yes\na,no\nz,yes\nb,maybe\n") == [
        ":3: the id 'a' stands in line 2 already (a case has one label: where several people have judged it, let them "
        "agree first)",
        ":4: there is no test case with the id 'z'",
        ":5: the label 'maybe' is not one of yes, true, 1, pass, no, false, 0, fail, as judge gives passed",
    ]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("id,verdict\na,yes\n", ":2: there must be a column id (or case_id) and a column label, not 'id', 'verdict'"),
        ("id,case_id,label\na,a,yes\n", "there must be a column id (or case_id)"),
        ("id,label\na,yes,no\n", ":2: has 3 cells, but the header has 2"),
        ("id,label\n", "holds no label for judge"),
        (",label\na,yes\n", "column 1 has no name"),
        ("id,label,check\na,yes,jugde\n", ":2: check: there is no judge jugde (name one of judge)"),
        ("id,label\na,nan\n", "'nan' is not one of"),
    ],
)
def test_a_file_that_holds_no_labels_is_refused(mistakes, text, mistake):
    assert mistake in mistakes(text)[0]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: there is no such file"):
        read_labels(tmp_path / "none.csv", [judge()], IDS)


@pytest.mark.parametrize(
    ("field", "label", "wanted"),
    [
        ("score", "good", "not a number, as scored gives score; --field compares passed or tone instead"),
        ("score", "inf", "not a number"),
        ("tone", "angry", "not one of rude, kind"),
        (None, "4", "not one of yes, true"),
    ],
)
def test_a_label_has_to_be_of_the_fields_type(mistakes, field, label, wanted):
    assert wanted in mistakes(f"id,label\na,{label}\n", [SCORED], field=field)[0]


class TestWhichJudge:
    def test_is_the_only_one_or_the_one_that_is_named(self, file):
        text = "id,label\na,yes\n"
        judges = [judge("one"), judge("two")]
        assert read_labels(file(text), judges[:1], IDS).judge.check_id == "one"
        assert read_labels(file(text), judges, IDS, check="two").judge.check_id == "two"
        with pytest.raises(UserError, match=r"several judges: say which one with --check \(one, two\)"):
            read_labels(file(text), judges, IDS)

    def test_may_stand_in_the_file_which_then_may_hold_the_labels_of_several(self, file):
        judges = [judge("one"), judge("two")]
        both = "id,label,check\na,yes,one\na,no,two\nb,no,\n"
        assert read_labels(file(both), judges, IDS, check="two").labels == {"a": False, "b": False}
        assert read_labels(file("id,label,check\na,yes,two\n"), judges, IDS).judge.check_id == "two"
        with pytest.raises(UserError, match="several judges"):
            read_labels(file(both), judges, IDS)

    def test_has_to_be_there(self, file):
        text = "id,label\na,yes\n"
        with pytest.raises(UserError, match=r"no judge three \(--check\): name one of judge"):
            read_labels(file(text), [judge()], IDS, check="three")
        with pytest.raises(UserError, match="no judge to calibrate"):
            read_labels(file(text), [], IDS)


class TestWhichMember:
    def test_is_passed_or_the_only_one(self, file):
        text = "id,label\na,1\n"
        assert read_labels(file(text), [SCORED], IDS).field == "passed"
        assert read_labels(file(text), [judge(score=("number", ()))], IDS).field == "score"

    def test_has_to_be_named_among_others(self, file):
        two = judge(clear=("boolean", ()), score=("number", ()))
        with pytest.raises(UserError, match="judge gives clear, score: say what the labels are about with --field"):
            read_labels(file("id,label\na,1\n"), [two], IDS)
        with pytest.raises(UserError, match=r"judge does not give tone \(--field\): name one of clear, score"):
            read_labels(file("id,label\na,1\n"), [two], IDS, field="tone")
        nothing = JudgeSpec("silent", "openai/any", {}, 1, "j", "r", {})
        with pytest.raises(UserError, match="silent gives nothing that can be compared"):
            read_labels(file("id,label\na,1\n"), [nothing], IDS)
