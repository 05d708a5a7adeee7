import json
from pathlib import Path

import pytest

from fepflow.diagnose.checks import checks_by_id
from fepflow.diagnose.suite_validation import read_cases
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InputError, UserError
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.create_run import RunOptions, create_run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a suite's files in it."""
    monkeypatch.chdir(tmp_path)
    cases = [{"id": str(index), "input": f"{index}?", "expected": "Paris"} for index in range(10)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "outputs.jsonl").write_text("".join('{"value": "Paris"}\n' for _ in cases))
    return tmp_path


BASE = """\
name: capitals
target: {http: {url: "http://127.0.0.1:9/"}}
test_cases: cases.jsonl
"""
CHECKS = """\
checks:
  - {type: contains, arguments: {text: $.output.value, phrases: $.test_case.expected}}
"""


def inspect(folder, text):
    path = folder / "suite.yaml"
    path.write_text(text)
    return validate_suite(Path("suite.yaml"), {})


def told(folder, text):
    return [str(problem) for problem in inspect(folder, text).problems]


def test_a_good_suite_has_its_cases_and_no_problems(folder):
    found = inspect(folder, BASE + CHECKS)
    assert found.problems == []
    assert len(found.cases) == 10
    assert found.require().name == "capitals"


def test_a_baseline_that_is_not_in_the_store_is_a_warning(folder, monkeypatch):
    monkeypatch.setenv("FEPFLOW_HOME", str(folder / "home"))
    settings.cache_clear()
    try:
        found = inspect(folder, BASE + CHECKS + "baseline: abcd1234\n")
        assert inspect(folder, BASE + CHECKS + "baseline: previous\n").problems == []
    finally:
        settings.cache_clear()
    assert found.errors == []
    (warning,) = map(str, found.warnings)
    assert warning.startswith("suite.yaml:6: baseline: There is no run 'abcd1234': `fepflow list`")


def test_errors_of_all_files_are_found_at_once(folder):
    (folder / "cases.jsonl").write_text('{"id": "a", "input": 1}\n{"id": "a", "input": 2}\n{"question": 3}\n')
    (folder / "bad_plugin.py").write_text("x = 1\nimport a_package_that_nobody_has\n")
    text = """\
name: capitals
target: {recorded: {path: nowhere.jsonl}}
test_cases: cases.jsonl
checks:
  - {type: containz, arguments: {}}
  - {type: threshold, arguments: {value: 1}}
metrics:
  - {id: acc, check: nothing}
gate: {min: {accuracy: 0.9}, max_impact: low}
plugins: [bad_plugin.py, ../outside.py]
"""
    found = inspect(folder, text)
    problems = [str(problem) for problem in found.errors]
    for part in (
        "suite.yaml:2: target.recorded.path: there is no file nowhere.jsonl",
        "suite.yaml:5: checks[0].type: there is no check type containz (did you mean contains?)",
        "suite.yaml:6: checks[1].arguments: threshold cannot take these arguments: give min_value, max_value, or both",
        "suite.yaml:8: metrics[0].check: the suite has no check with the id nothing",
        "suite.yaml:9: gate.min.accuracy: there is no metric accuracy (there is acc)",
        "suite.yaml:9: gate.max_impact: there are no thresholds that give an impact",
        "suite.yaml:10: plugins[1]: leads out of the suite's folder",
        "bad_plugin.py:2: cannot be loaded: ModuleNotFoundError",
        "cases.jsonl:2: the id 'a' stands in line 1 already",
        "cases.jsonl:3: input is missing",
    ):
        assert [problem for problem in problems if problem.startswith(part)], part
    assert len(problems) == 10
    with pytest.raises(InputError) as caught:
        found.require()
    assert len(caught.value.problems) == 10


def test_errors_inside_thresholds_are_found(folder):
    thresholds = "thresholds:\n  contains:\n    - {label: low, min: 0.5}\n"
    problems = told(folder, BASE + CHECKS + thresholds)
    assert [problem for problem in problems if "label" in problem and "impact" in problem]
    assert problems[0].startswith("suite.yaml:8: thresholds.contains[0]: ")


def test_recorded_outputs_belong_to_the_cases(folder):
    text = BASE.replace('http: {url: "http://127.0.0.1:9/"}', "recorded: {path: outputs.jsonl}") + CHECKS
    assert told(folder, text) == []
    (folder / "outputs.jsonl").write_text('{"value": "Paris"}\n')
    (problem,) = told(folder, text)
    assert "outputs.jsonl: holds 1 records, but there are 10 test cases" in problem


def test_a_suite_without_checks_judges_nothing(folder):
    assert told(folder, BASE) == [
        "suite.yaml:1: there are no checks, so nothing is judged (add checks:, or checks of the test cases)"
    ]


def test_checks_of_the_cases_are_checks(folder):
    case = "{id: a, input: 1, checks: [{type: contains, arguments: {text: $.output.value, phrases: a}}]}"
    text = BASE.replace("cases.jsonl", f"[{case}]") + "metrics: [{id: acc, check: contains}]\n"
    assert inspect(folder, text).errors == []
    (warning,) = told(folder, text.replace(f"[{case}]", f"[{case}, {{id: b, input: 2}}]"))
    assert "test_cases: 1 of 2 test cases has no check, so nothing judges their answers" in warning


def test_a_mistake_in_a_check_of_a_case_names_the_case(folder):
    text = BASE.replace("cases.jsonl", "[{id: first, input: 1, checks: [{type: contains, arguments: {}}]}]")
    assert told(folder, text) == [
        "suite.yaml:3: test_cases[0].checks[0].arguments.phrases: the test case first has no $.test_case.expected "
        "(did you mean $.test_case.id?)",
    ]


@pytest.mark.parametrize(
    ("check", "lacking"),
    [
        ("{type: rubric, criteria: polite, llm_function: judge}", False),
        ("{type: context_precision, context: [a], llm_function: judge}", False),
        ("{type: attribute_exists, path: $.test_case.expected}", False),
        ("{type: rubric, criteria: polite, llm_function: judge, reference: $.test_case.metadata.answer}", True),
    ],
)
@pytest.mark.parametrize("is_shared", [False, True])
def test_only_a_path_that_the_author_wrote_must_find_something_where_the_default_may_find_nothing(
    folder, check, lacking, is_shared
):
    own = "" if is_shared else f", checks: [{check}]"
    text = BASE.replace("cases.jsonl", f"[{{id: a, input: 1{own}}}]") + (f"checks: [{check}]\n" if is_shared else "")
    problems = [problem for problem in told(folder, text) if "finds nothing" in problem or " has no $." in problem]
    assert bool(problems) is lacking, problems


def test_ids_of_inline_cases_are_unique(folder):
    text = BASE.replace("cases.jsonl", "\n  - {id: a, input: 1}\n  - {id: a, input: 2}") + CHECKS
    assert (
        told(folder, text)[0]
        == "suite.yaml:5: test_cases[1]: the id 'a' appears twice (test_cases[0] has it; ids are unique)"
    )


def test_a_gate_out_of_reach_for_the_sample_size_is_a_warning(folder):
    found = inspect(folder, BASE + CHECKS + "gate: {min: {contains: 0.9}}\n")
    assert found.errors == []
    (warning,) = found.warnings
    says = (
        "10 test cases cannot show contains of at least 0.9, even if all pass (it takes 35 at 95%, and 254 if 0.95 do, "
    )
    assert says + "to pass 4 times out of 5: see fepflow plan)" in str(warning)


def test_a_gate_says_what_its_choices_do_not_go_with(folder):
    suite = BASE + CHECKS + "metrics: [{id: acc, check: contains}]\n"
    (problem,) = told(folder, suite + "gate: {min: {acc: 0.1}, sides: one, verdict: point}\n")
    assert problem == (
        "suite.yaml:7: gate.sides: sides is of intervals, and verdict: point judges by values alone "
        "(leave out sides, or verdict)"
    )
    (problem,) = told(folder, suite + "gate: {missing: random}\n")
    assert problem.startswith("suite.yaml:7: gate.missing: missing: random is of metrics with a limit")
    assert told(folder, suite + "gate: {min: {acc: 0.01}, missing: random}\n") == []


def test_pooled_looks_need_a_version_and_intervals(folder):
    gate = CHECKS + "gate: {min: {contains: 0.1}, looks: pooled}\n"
    (problem,) = told(folder, BASE + gate)
    assert problem == (
        "suite.yaml:6: gate.looks: the runs of one version are judged together, and no version is named "
        "(add version: ${GIT_SHA} to target, or run with --version NAME)"
    )
    assert validate_suite(folder / "suite.yaml", version="7").notes == []  # as of `fepflow run --version 7`
    named = BASE.replace("target: {", "target: {version: a, ") + gate
    assert told(folder, named) == []
    (problem,) = told(folder, named.replace("looks:", "verdict: point, looks:"))
    assert problem.endswith("goes by values alone (leave out looks, or verdict)")
    (problem, *_) = told(folder, named.replace("looks:", "top_up: {max_cases: 10}, looks:"))
    assert "gate.looks: a run that is topped up is looked at many times itself" in problem


def test_pooled_looks_take_more_cases_at_the_first_one(folder):
    named = BASE.replace("target: {", "target: {version: a, ") + CHECKS
    (warning,) = told(folder, named + "gate: {min: {contains: 0.9}, looks: pooled}\n")
    assert "it takes 43 at 97%" in warning


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "cases.jsonl"
    elsewhere.write_text('{"id": "a", "input": 1}\n')
    (folder / "link.jsonl").symlink_to(elsewhere)
    problems = told(folder, BASE.replace("cases.jsonl", "link.jsonl") + CHECKS)
    assert problems[0].startswith("suite.yaml:3: test_cases: leads out of the suite's folder")


def test_a_plugin_brings_the_checks_that_the_suite_uses(folder):
    (folder / "mine.py").write_text(
        "from fepflow.checks.base import BaseCheck\nfrom fepflow.checks.registry import register\n\n"
        "@register('inspected_check')\nclass Mine(BaseCheck):\n"
        "    def __call__(self):\n        return {'passed': True}\n"
    )
    assert told(folder, BASE + "checks: [{type: inspected_check}]\nplugins: [./mine.py]\n") == []


def test_an_embedder_of_a_plugin_is_that_of_the_suite(folder):
    (folder / "mine.py").write_text(
        "from fepflow import register_embedder\n\n"
        "@register_embedder('inspected')\ndef inspected(texts):\n    return [[1.0] for _ in texts]\n"
    )
    suite = BASE + CHECKS + "plugins: [./mine.py]\n"
    assert told(folder, suite + "embedding: {model_config: {model: 'local:inspected'}}\n") == []
    (missing,) = told(folder, suite + "embedding: {model_config: {model: 'local:nobody'}}\n")
    assert missing.startswith("suite.yaml:7: embedding.model_config: there is no embedder nobody here")
    (judge,) = told(folder, suite + "judge: {model_config: {model: 'local:inspected'}}\n")
    assert judge == "suite.yaml:7: judge.model_config: local:inspected is an embedder, and gives no verdicts"


def test_a_variable_that_is_not_set_has_no_consequences(folder):
    problems = told(folder, BASE.replace("cases.jsonl", "${CASES}") + CHECKS)
    assert len(problems) == 1
    assert "${CASES} is not set" in problems[0]


def test_cases_alone_can_be_read(folder):
    assert [case.id for case in read_cases(inspect(folder, BASE + CHECKS).loaded)] == [
        str(index) for index in range(10)
    ]
    with pytest.raises(InputError, match=r"nowhere\.jsonl"):
        read_cases(inspect(folder, BASE.replace("cases.jsonl", "nowhere.jsonl")).loaded)


def test_the_ids_of_all_checks_are_known_before_anything_runs(folder):
    text = BASE.replace(
        "cases.jsonl", "[{id: a, input: 1, checks: [{type: contains}, {type: regex}]}, {id: b, input: 1}]"
    )
    found = inspect(folder, text + CHECKS)
    assert list(checks_by_id(found)) == ["contains", "contains-2", "regex"]


def gated(folder, gate, cases=10, limit=None, more=""):
    """What is warned of, with a gate."""
    (folder / "cases.jsonl").write_text("".join(f'{{"input": {n}, "expected": "x"}}\n' for n in range(cases)))
    (folder / "suite.yaml").write_text(BASE + CHECKS + more + f"gate: {gate}\n")
    found = validate_suite(Path("suite.yaml"), {}, limit)
    assert found.errors == []
    return [str(problem) for problem in found.warnings]


def test_a_minimum_that_the_cases_of_a_limit_cannot_show_is_warned_of(folder):
    assert gated(folder, "{min: {contains: 0.9}}", cases=40) == []
    (warning,) = gated(folder, "{min: {contains: 0.9}}", cases=40, limit=20)
    assert (
        "20 test cases cannot show contains of at least 0.9, even if all pass (it takes 35 at 95%, and 254 if 0.95"
        in warning
    )
    assert "10 test cases cannot show" in gated(folder, "{min: {contains: 0.9}}", cases=40, limit=0.25)[0]
    assert gated(folder, "{min: {contains: 0.9}, verdict: point}", cases=40, limit=20) == []
    assert "takes 36" in gated(folder, "{min: {contains: 0.9}, interval: clopper-pearson}", cases=35)[0]


def test_a_score_with_a_range_is_warned_of_on_its_scale(folder):
    metrics = "metrics: [{id: stars, check: contains, value: $..stars, range: [1, 5]}]\n"
    (warning,) = gated(folder, "{min: {stars: 4.6}}", cases=34, more=metrics)
    assert "34 test cases cannot show stars of at least 4.6" in warning
    assert gated(folder, "{min: {stars: 4.6}}", cases=35, more=metrics) == []


@pytest.mark.parametrize(
    ("gate", "more", "place"),
    [
        ("{min: {stars: 4.6}}", "", "7: gate.min.stars"),
        ("{max: {stars: 4.6}, verdict: point}", "", "7: gate.max.stars"),
        ("{regression: {margin: {stars: 0.1}}}", "", "7: gate.regression.margin.stars"),
        ("{max_impact: low}", "thresholds: {stars: [{impact: low, min: 3}]}\n", "7: thresholds.stars"),
    ],
)
def test_a_limit_on_a_mean_without_a_range_is_warned_of(folder, gate, more, place):
    metrics = "metrics: [{id: stars, check: contains, value: $..stars}]\n"
    (warning,) = [text for text in gated(folder, gate, cases=200, more=metrics + more) if "single value" in text]
    verdict = "its value alone decides" if "point" in gate else "it will be neither pass nor fail"
    assert warning.startswith(f"suite.yaml:{place}: stars: {verdict}; it is not known how large or small")
    assert "(declare range: [least, most] of the metric, or judge a rate (aggregate: rate" in warning
    ranged = gated(folder, gate, cases=200, more=metrics.replace("}]", ", range: [1, 5]}]") + more)
    assert not any("single value" in text for text in ranged)


def test_a_percentile_needs_enough_values_to_have_a_bound(folder):
    metrics = "metrics: [{id: slow, value: $.output.metadata.latency_ms, aggregate: p95}]\n"
    (warning,) = gated(folder, "{max: {slow: 2000}}", cases=71, more=metrics)
    assert "71 test cases cannot show slow of at most 2000, whatever their values are (it takes 72 at 95%)" in warning
    assert gated(folder, "{max: {slow: 2000}}", cases=72, more=metrics) == []
    assert gated(folder, "{min: {slow: 1}}", cases=2, more=metrics) == [], "one of two is above the 5th percentile"


def test_a_maximum_is_warned_of_as_a_minimum_is(folder):
    metrics = "metrics: [{id: errors, check: contains, aggregate: error_rate}]\n"
    (warning,) = gated(folder, "{max: {errors: 0.1}}", cases=34, more=metrics)
    assert "34 test cases cannot show errors of at most 0.1, whatever their values are (it takes 35 at 95%)" in warning
    assert gated(folder, "{max: {errors: 0.1}}", cases=35, more=metrics) == []


@pytest.mark.parametrize("gate", ["{min: {contains: 0}}", "{max: {contains: 1}}"])
def test_a_limit_that_every_value_keeps_to_is_warned_of(folder, gate):
    (warning,) = gated(folder, gate, cases=35)
    assert "every value of contains passes, as it lies between 0 and 1 (give another m" in warning


def test_a_share_of_repeats_takes_enough_of_them_to_allow_a_failure(folder):
    metrics = "metrics: [{id: m, check: contains, aggregate: each@0.8}]\n"
    (warning,) = map(str, inspect(folder, BASE + CHECKS + metrics).warnings)
    assert "metrics[0].aggregate: with 1 repeat of each case, each@0.8 asks for the only one" in warning
    (warning,) = map(str, inspect(folder, BASE + CHECKS + metrics + "repeats: 4\n").warnings)
    assert "with 4 repeats of each case, each@0.8 asks for all 4 (from 5 repeats on one may fail" in warning
    assert inspect(folder, BASE + CHECKS + metrics + "repeats: 5\n").problems == []
    for wrong in ("each@0", "each@80", "each@1.5", "each"):
        assert inspect(folder, BASE + CHECKS + metrics.replace("each@0.8", wrong)).errors


def test_pass_at_k_takes_repeats(folder):
    metrics = "metrics: [{id: m, check: contains, aggregate: pass@3}]\n"
    found = inspect(folder, BASE + CHECKS + metrics)
    (warning,) = map(str, found.warnings)
    assert "metrics[0].aggregate: pass@3 takes at least 3 repeats of each case, not 1" in warning
    assert inspect(folder, BASE + CHECKS + metrics + "repeats: 3\n").problems == []
    with Store.open(f"sqlite:///{folder / 'store.db'}") as store:
        with pytest.raises(UserError, match="The metric m is pass@3, which takes 3 repeats of each case or more"):
            create_run(store, found)
        assert create_run(store, found, RunOptions(repeats=3)).run.repeats == 3


def test_impacts_that_the_cases_cannot_show_are_warned_of(folder):
    ranges = "[{impact: severe, max: 0.9}, {impact: low, min: 0.9}]"
    more = f"thresholds: {{contains: {ranges}}}\n"
    (warning,) = gated(folder, "{max_impact: low}", cases=20, more=more)
    assert warning.startswith("suite.yaml:7: gate.max_impact: 20 test cases cannot show that contains has an impact of")
    assert gated(folder, "{max_impact: low}", cases=35, more=more) == []
    assert gated(folder, "{max_impact: severe}", cases=2, more=more) == []
    assert "cannot show" in gated(folder, "{confidence: 0.99}", cases=35, more=more)[0]


@pytest.mark.parametrize("confidence", [0.8, 0.9])
def test_wilsons_interval_is_warned_of_at_a_low_confidence(folder, confidence):
    (warning,) = gated(folder, f"{{confidence: {confidence}, interval: wilson}}")
    assert "the intervals let wrong agents pass more often than that promises" in warning
    assert gated(folder, f"{{confidence: {confidence}}}") == [], "the exact interval is taken there"
    assert gated(folder, "{confidence: 0.99}") == []


@pytest.mark.parametrize("range_", ["[1, 0]", "[0, 0]", "[0]", "[0, 1, 2]", "0", "[a, b]"])
def test_an_invalid_range_is_an_error(folder, range_):
    metrics = f"metrics: [{{id: stars, check: contains, value: $.stars, range: {range_}}}]\n"
    assert any("metrics[0].range" in problem for problem in told(folder, BASE + CHECKS + metrics))


def topics(folder, sizes, section, more=""):
    """What is said of slices, of cases with these topics."""
    named = [topic for topic, n in sizes.items() for _ in range(n)]
    cases = [
        {"id": str(n), "input": n, "expected": "x", "metadata": {"topic": topic} if topic else {}}
        for n, topic in enumerate(named)
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    return told(folder, BASE + CHECKS + more + f"slices: {section}\n")


def test_slices_that_can_be_judged_are_fine(folder):
    assert topics(folder, {"a": 17, "b": 20}, "{by: topic, min: 0.8}") == []
    assert topics(folder, {"a": 1}, "{by: topic}") == []
    assert topics(folder, {"a": 17}, "{by: topic, min: {contains: 0.8}}") == []


def test_slices_that_are_too_small_are_warned_of(folder):
    (warning,) = topics(folder, {"a": 15, "b": 20, "": 3}, "{by: topic, min: 0.8}")[1:]
    small = "have fewer than 17 test cases: (none) and a (there contains can fail and not pass: see slices.small)"
    assert small in warning
    (ignored,) = topics(folder, {"a": 15, "b": 20}, "{by: topic, min: 0.8, small: ignore}")
    assert "(there contains is judged only if it fails)" in ignored
    (none,) = topics(folder, {"a": 17, "": 17}, "{by: topic, min: 0.8}")
    assert "17 of 34 test cases have no topic in their metadata (they are a slice of their own: (none))" in none


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{by: topics}", "slices.by: no test case has topics in its metadata (did you mean topic?)"),
        ("{min: 0.8}", "slices.by: is missing"),
        ("{by: topic, small: ignore}", "slices.small: without min no slice is judged (give min, or leave out small)"),
        ("{by: topic, min: {acc: 0.8}}", "slices.min.acc: there is no metric acc (there is contains)"),
        ("{by: topic, min: 80}", "slices.min: a minimum of 80 does not judge contains, which lies between 0 and 1"),
        ("{by: topic, min: 0}", "slices.min: a minimum of 0 does not judge contains, which lies between 0 and 1"),
    ],
)
def test_mistakes_in_slices(folder, section, message):
    assert any(message in problem for problem in topics(folder, {"a": 30}, section))


def test_minima_of_slices_are_for_shares_and_means_with_a_range(folder):
    metric = "metrics: [{{id: stars, check: contains, value: $..stars{}}}]\n".format
    for more in (metric(""), metric(", range: [1, 5], aggregate: median")):
        problems = topics(folder, {"a": 30}, "{by: topic, min: {stars: 4}}", more)
        assert any("slices of stars cannot be compared with a minimum" in problem for problem in problems)
    problems = topics(folder, {"a": 30}, "{by: topic, min: 4}", metric(", range: [1, 5]"))
    assert any("there is no metric that it is for (name the metrics" in problem for problem in problems)
    assert topics(folder, {"a": 30}, "{by: topic, min: {stars: 4}}", metric(", range: [1, 5]")) == []


def test_slices_are_groups(folder):
    (problem,) = topics(folder, {f"topic {n}": 1 for n in range(201)}, "{by: topic}")
    assert "topic has 201 different values, and there can be 200 slices (slices are groups of test cases)" in problem


GATE = "gate: {min: {contains: 0.5}}\n"


def documents(folder, key="document"):
    """Write 20 questions about each of ten documents, after the same question under ten ids."""
    same = [{"input": "Paris?", "metadata": {}}] * 10
    about = [{"input": f"{number}?", "metadata": {key: f"d{number % 10}"}} for number in range(200)]
    cases = [dict(case, id=str(number), expected="Paris") for number, case in enumerate([*same, *about])]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))


def test_the_same_case_under_several_ids_and_documents_of_several_cases_are_warned_of(folder):
    documents(folder)
    assert told(folder, BASE + CHECKS + GATE) == [
        "suite.yaml:3: test_cases: 10 of 210 test cases have the same content under different ids: 0, 1, 2 and 7 more "
        "(they count as repeats of one case)",
        "suite.yaml:3: test_cases: 200 test cases share 10 values of metadata.document: cases of one document are "
        "rarely independent, so the intervals may be too narrow (set cluster: $.test_case.metadata.document; cluster: "
        "$.test_case.id says that they are independent)",
    ]


@pytest.mark.parametrize(
    ("key", "gate"), [("topic", GATE), ("document", ""), ("document", "gate: {min: {contains: 0.5}, verdict: point}\n")]
)
def test_topics_and_gates_without_intervals_need_no_clusters(folder, key, gate):
    documents(folder, key)
    assert [problem for problem in told(folder, BASE + CHECKS + gate) if "metadata" in problem] == []


@pytest.mark.parametrize("other", ["a text", {"deep": 1}, None])
def test_metadata_of_any_kind_may_stand_beside_a_slice(folder, other):
    cases = [
        json.dumps({"id": str(n), "input": str(n), "expected": "x", "metadata": {"topic": f"t{n % 2}"}})
        for n in range(40)
    ]
    cases.append(json.dumps({"id": "x", "input": "x", "expected": "x", "metadata": {"topic": "t1", "more": other}}))
    (folder / "cases.jsonl").write_text("\n".join(cases))
    assert told(folder, BASE + CHECKS + "slices: {by: topic}\n") == []


def test_a_limit_that_is_nothing_beside_its_range_is_no_fault(folder):
    metric = "metrics: [{id: ms, value: $.output.metadata.ms, range: [0, 1.0e+18]}]\n"
    assert not [line for line in told(folder, BASE + CHECKS + metric + "gate: {max: {ms: 5}}\n") if "fault" in line]


def of_labels(folder, aggregate, minimum="0.5", check="classification", cases=40):
    rows = "".join(f"  - {{id: '{n}', input: q, expected: {'refund' if n % 4 else 'other'}}}\n" for n in range(cases))
    base = "name: s\ntarget: {http: {url: 'http://127.0.0.1:9/'}}\n"
    arguments = "arguments: {actual: $.output.value, expected: $.test_case.expected}"
    check = f"checks:\n  - {{type: {check}, id: c, {arguments}}}\n"
    metrics = f"metrics: [{{id: m, check: c, aggregate: {aggregate}}}]\n"
    found = inspect(folder, f"{base}test_cases:\n{rows}{check}{metrics}gate: {{min: {{m: {minimum}}}}}\n")
    return [str(problem) for problem in found.problems if "metrics" in str(problem) or "gate" in str(problem)]


def test_measures_of_labels_need_labels_that_test_cases_expect(folder):
    assert of_labels(folder, "recall@refund") == of_labels(folder, "f1@Refund") == of_labels(folder, "f1") == []
    (problem,) = of_labels(folder, "recall@refnd")
    assert "no test case expects the label refnd (did you mean refund?)" in problem
    (problem,) = of_labels(folder, "f1", check="equals")
    assert "f1 is of labels, and equals gives none (take a check of the type classification)" in problem


def test_so_few_cases_of_a_label_cannot_show_a_minimum(folder):
    (problem,) = of_labels(folder, "recall@other", "0.9")
    assert "10 test cases that expect other cannot show m of at least 0.9, even if all pass" in problem
    assert "they show 0.69 at most" in problem
    (problem,) = of_labels(folder, "f1", "0.9")
    assert "40 test cases cannot show m of at least 0.9" in problem
