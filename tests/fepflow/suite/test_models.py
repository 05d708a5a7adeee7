import pytest

from fepflow.documents.loader import parse_document
from fepflow.errors import InputError
from fepflow.protocol.check import Check
from fepflow.suite.models import check_ids
from fepflow.suite.reader import load_suite, name_of, read_suite, resolve_inside

WHOLE = """\
name: refunds
description: what the refund desk must get right
task: refunds
target:
  http:
    url: ${BOT_URL}
    headers: {Authorization: "Bearer ${BOT_TOKEN}"}
    body: {question: $.test_case.input}
    output: $.answer
    metadata: {tokens: $.usage.total_tokens}
    max_bytes: 2MB
  timeout: 1m
  connect_timeout: 500ms
  attempts: 5
  concurrency: 8
test_cases: {path: cases.jsonl, input: $.question}
repeats: 3
checks:
  - {type: contains, arguments: {text: $.output.value, phrases: "${BOT_URL}"}}
metrics:
  - {id: acc, check: contains}
thresholds: thresholds/
gate: {max_impact: low, confidence: 0.9}
plugins: [./my_checks.py]
tags: [nightly]
batch_size: 10
"""

MINIMAL = "name: a\ntarget: {recorded: {path: out.jsonl}}\ntest_cases: cases.jsonl\n"


def read(text, env=None, tmp_path=None):
    return read_suite(parse_document(text, "suite.yaml"), tmp_path, env or {})


def told(text, env=None):
    return [str(problem) for problem in read(text, env).problems]


def test_a_whole_suite_is_read():
    loaded = read(WHOLE, {"BOT_URL": "http://bot/", "BOT_TOKEN": "s3cret-token"})
    assert not loaded.problems
    suite = loaded.suite
    assert suite.target.http.url == "http://bot/"
    assert suite.target.http.max_bytes == 2_000_000
    assert (suite.target.timeout, suite.target.connect_timeout, suite.target.read_timeout) == (60.0, 0.5, None)
    assert suite.test_cases.path == "cases.jsonl"
    assert suite.gate.max_impact == "low"


def test_a_minimal_suite_has_defaults():
    loaded = read(MINIMAL)
    assert not loaded.problems
    assert (loaded.suite.repeats, loaded.suite.checks, loaded.suite.target.attempts) == (1, [], 3)
    assert loaded.section("metrics") is None
    assert loaded.section("tags") == []


def test_the_secret_is_known_and_never_shown():
    loaded = read(WHOLE, {"BOT_URL": "http://bot/", "BOT_TOKEN": "s3cret-token"})
    assert loaded.secrets == {"s3cret-token"}
    assert "s3cret-token" not in repr(loaded)
    assert loaded.snapshot["target"]["http"]["headers"]["Authorization"] == "Bearer ${BOT_TOKEN}"


def test_checks_and_inline_cases_see_no_environment():
    text = MINIMAL.replace("cases.jsonl", "[{id: a, input: '${BOT_TOKEN}'}]")
    text += "checks: [{type: contains, arguments: {text: '${BOT_TOKEN}', phrases: a}}]\n"
    suite = read(text, {"BOT_TOKEN": "s3cret"}).suite
    assert suite.test_cases[0].input == "${BOT_TOKEN}"
    assert suite.checks[0].arguments["text"] == "${BOT_TOKEN}"


def test_a_variable_that_is_not_set_is_the_only_complaint_about_its_value():
    problems = told(WHOLE)
    assert problems == [
        "suite.yaml:6: target.http.url: ${BOT_URL} is not set in the environment "
        "(export BOT_URL, or give a default: ${BOT_URL:-...})",
        "suite.yaml:7: target.http.headers.Authorization: ${BOT_TOKEN} is not set in the environment "
        "(export BOT_TOKEN, or give a default: ${BOT_TOKEN:-...})",
    ]
    assert read(WHOLE).section("target") is None


def test_ten_mistakes_are_ten_problems_each_with_its_line():
    text = """\
nmae: refunds
target:
  http:
    url: ftp://x
    output: answer
    max_bytes: 10 apples
  timeout: soon
  attempts: 0
test_cases: 5
repeats: 1.5
checks:
  - {typ: contains}
  - contains
metrics:
  - {id: a b, check: contains}
gate: {max_impact: lowish, confidence: 95}
tags: smoke
"""
    assert told(text) == [
        "suite.yaml:1: nmae: nmae is not a section of a suite (did you mean name?)",
        "suite.yaml:1: name is missing (add name: what the suite is about)",
        "suite.yaml:4: target.http.url: ftp:// is not known (an address starts with http:// or https://)",
        "suite.yaml:5: target.http.output: a JSONPath starts with $: did you mean $.answer?",
        "suite.yaml:6: target.http.max_bytes: a size reads like 500kB or 10MB",
        "suite.yaml:7: target.timeout: a duration reads like 500ms, 30s, 2m, 1h or 7d",
        "suite.yaml:8: target.attempts: must be at least 1",
        "suite.yaml:9: test_cases: must be a file, a mapping with path, or a list",
        "suite.yaml:10: repeats: must be a whole number",
        "suite.yaml:12: checks[0].type: is missing (add it)",
        "suite.yaml:12: checks[0].typ: typ is not known here (did you mean type?)",
        "suite.yaml:13: checks[1]: must be a mapping (write {type: contains, ...}, with the arguments beside the type)",
        "suite.yaml:15: metrics[0].id: may hold letters, digits, _ and - only",
        "suite.yaml:16: gate.max_impact: must be one of "
        "'no_measurable', 'very_low', 'low', 'moderate', 'high' or 'severe'",
        "suite.yaml:16: gate.confidence: must be less than 1",
        "suite.yaml:17: tags: must be a list (write it in brackets: [ ])",
    ]


COMMON_ERRORS = [
    ("name: 5", "name: must be a text (put it in quotes)"),
    ("name: ''", "name: must not be empty"),
    ("target: {}", "target: give exactly one of http, openai, python, ecp, a2a, mcp, recorded"),
    ("target: http://bot", "target: must be a mapping (write target: {http: {url: ...}})"),
    ("target: agent.py:ask", "target: must be a mapping (write target: {python: ...}, or http:, ecp:)"),
    ("gate: 0.9", "gate: must be a mapping (write gate: {min: {METRIC: 0.9}})"),
    (
        "checks: [contains]",
        "checks[0]: must be a mapping (write {type: contains, ...}, with the arguments beside the type)",
    ),
    (
        "checks: [{contains: {text: a}}]",
        "checks[0].type: is missing (write {type: contains, ...}, with the arguments beside the type)",
    ),
    (
        "checks: [{contains: Paris, id: city}]",
        "checks[0].type: is missing (write {type: contains, ...}, with the arguments beside the type)",
    ),
    (
        "test_cases: {path: cases.csv, expected: {answer: $.a}}",
        "test_cases.expected: must be one path, such as $.answer; an object of several fields is `metadata: "
        "{NAME: $.field, ...}`, and checks read it as $.test_case.metadata.NAME",
    ),
    ("target: {http: {}}", "target.http.url: is missing (add it)"),
    ("target: {ecp: x}", "target.ecp: must be a mapping"),
    (
        "target: {ecp: {}}",
        "target.ecp: give command, a program to start, or url, the address of one that runs already",
    ),
    (
        "target: {ecp: {command: a, url: 'http://x'}}",
        "target.ecp: give command, a program to start, or url, the address of one that runs already",
    ),
    ("target: {ecp: {command: a, headers: {X: y}}}", "target.ecp: headers has no meaning with command"),
    ("target: {ecp: {url: 'http://x', env: [A], reuse: true}}", "target.ecp: env, reuse has no meaning with url"),
    ("target: {ecp: {command: []}}", "target.ecp.command: must not be empty: it is a program and its arguments"),
    (
        "target: {ecp: {command: 'a \"b'}}",
        "target.ecp.command: cannot be split as a shell would: no closing quotation",
    ),
    ("target: {ecp: {command: a, env: [A=b]}}", "target.ecp.env[0]: must be the name of an environment variable"),
    (
        "target: {ecp: {command: a, config: {api_key: sk-0123456789}}}",
        "target.ecp.config.api_key: a secret must not stand in the suite (write it as ${NAME})",
    ),
    (
        "target: {ecp: {url: 'http://u:secret@x'}}",
        "target.ecp.url: a secret must not stand in the address (write it as ${NAME})",
    ),
    (
        "target: {ecp: {url: x}}",
        "target.ecp.url: the address has no scheme (write http:// or https:// before it)",
    ),
    (
        "target: {http: {url: 'http://x', headers: {X: 5}}}",
        "target.http.headers.X: must be a text (put it in quotes)",
    ),
    (
        "target: {http: {url: 'http://x', method: PATCH}}",
        "target.http.method: must be one of 'POST', 'PUT' or 'GET'",
    ),
    ("target: {http: {url: 'http://x'}, timeout: 0}", "target.timeout: must be more than 0"),
    (
        "target: {http: {url: 'http://x'}, concurrency: '4'}",
        "target.concurrency: must be a whole number (take the quotes off)",
    ),
    ("test_cases: {pth: x}", "test_cases.path: is missing (add it)"),
    ("test_cases: [7]", "test_cases[0]: must be a mapping"),
    ("test_cases: [{id: a}]", "test_cases[0].input: is missing (add it)"),
    ("test_cases: [{id: 5, input: a}]", "test_cases[0].id: must be a text (put it in quotes)"),
    (
        "test_cases: [{input: a, checks: [{type: 5}]}]",
        "test_cases[0].checks[0].type: must be a text (put it in quotes)",
    ),
    ("checks: {type: contains}", "checks: must be a list (write a dash before each check)"),
    ("checks: [{type: contains, version: new}]", "checks[0].version: must be a semantic version, such as 1.2.0"),
    ("checks: [{type: contains, arguments: [1]}]", "checks[0].arguments: must be a mapping"),
    (
        "metrics: [{id: a, check: b, aggregate: average}]",
        "metrics[0].aggregate: must be mean, rate, error_rate, median, majority, worst, a percentile such as p95, "
        "pass@3 or pass^3 with any number, each@0.8 with any share, or f1, precision or recall, also of a class as "
        "in f1@refund",
    ),
    (
        "metrics: [{id: a, value: $.score}]",
        "metrics[0]: name the check, or give the value of an output, such as $.output.metadata.latency_ms",
    ),
    (
        "metrics: [{id: a, check: b, value: $.output.value.x}]",
        "metrics[0]: a value of an output does not belong to a check: leave check out",
    ),
    ("metrics: [{id: a, check: b, at_least: 4}]", "metrics[0]: at_least and at_most are of aggregate: rate"),
    (
        "metrics: [{id: a, check: b, aggregate: p95}]",
        "metrics[0]: p95 is of numbers: give value, such as $.response.score",
    ),
    (
        "metrics: [{id: a, check: b, aggregate: error_rate, value: $.score}]",
        "metrics[0]: an error_rate counts results, and has neither value nor range",
    ),
    (
        "metrics: [{id: a, value: $.output.metadata.tokens, aggregate: worst}]",
        "metrics[0]: worst is the least score of a check; of outputs take a percentile, such as p99",
    ),
    ("thresholds: 5", "thresholds: must be a text or a mapping"),
    ("gate: strict", "gate: must be a mapping"),
    ("gate: {min: {acc: high}}", "gate.min.acc: must be a number"),
    ("repeats: 0", "repeats: must be at least 1"),
    ("repeats: true", "repeats: must be a whole number"),
    ("plugins: ./x.py", "plugins: must be a list (write it in brackets: [ ])"),
    (
        "baseline: latest",
        "baseline: must be previous, the name of a baseline (`fepflow baseline list`), or a run's id",
    ),
    ("baseline: 12345678", "baseline: must be a text (put it in quotes)"),
]


def test_common_errors_have_clear_messages():
    for section, sentence in COMMON_ERRORS:
        name = section.split(":")[0]
        lines = [line for line in MINIMAL.splitlines() if not line.startswith(name)]
        sentences = [problem.split(": ", 1)[1] for problem in told("\n".join([*lines, section]))]
        assert sentences == [sentence] or (sentence in sentences and "missing" in sentence), section


@pytest.mark.parametrize(
    ("text", "what"), [("[1]", "holds a list"), ("a", "holds a text"), ("5", "holds a number"), ("", "is empty")]
)
def test_a_suite_has_to_be_a_mapping(text, what):
    with pytest.raises(InputError, match=f"{what}, but a suite is a mapping"):
        read(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("1.5m", 90),
        ("2 h", 7200),
        ("10", None),
        ("7d", 604_800),
        ("1w", None),
        ("-1s", None),
    ],
)
def test_durations(text, seconds):
    loaded = read(MINIMAL.replace("jsonl}}", "jsonl}, timeout: '" + text + "'}"))
    assert (loaded.suite.target.timeout if loaded.suite else None) == seconds


def test_a_duration_may_be_a_number_of_seconds():
    assert read(MINIMAL.replace("jsonl}}", "jsonl}, timeout: 7}")).suite.target.timeout == 7.0


@pytest.mark.parametrize(("text", "size"), [("500kB", 500_000), ("10 MB", 10_000_000), ("1GB", 10**9), ("7", 7)])
def test_sizes(text, size):
    text = MINIMAL.replace("{recorded: {path: out.jsonl}}", "{http: {url: 'http://x', max_bytes: " + text + "}}")
    assert read(text).suite.target.http.max_bytes == size


def test_a_literal_secret_is_refused_and_not_repeated():
    text = MINIMAL.replace(
        "{recorded: {path: out.jsonl}}", "{http: {url: 'http://x', headers: {Authorization: tok-123}}}"
    )
    (problem,) = told(text)
    assert "a secret must not stand in the suite (write it as ${NAME})" in problem
    assert "tok-123" not in problem


class TestPaths:
    def test_below_the_folder_is_inside(self, tmp_path):
        assert resolve_inside(tmp_path, "a/../b.jsonl", []) == tmp_path.resolve() / "b.jsonl"

    @pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x"])
    def test_elsewhere_is_outside(self, tmp_path, path):
        with pytest.raises(ValueError, match="leads out of the suite's folder"):
            resolve_inside(tmp_path, path, [])

    def test_a_folder_whose_name_only_begins_the_same_is_outside(self, tmp_path):
        (tmp_path / "suite").mkdir()
        with pytest.raises(ValueError, match="leads out"):
            resolve_inside(tmp_path / "suite", "../suite-secrets/x", [])

    def test_a_link_that_leads_out_is_outside_unless_its_goal_is_allowed(self, tmp_path):
        suite, elsewhere = tmp_path / "suite", tmp_path / "elsewhere"
        suite.mkdir()
        elsewhere.mkdir()
        (suite / "link").symlink_to(elsewhere)
        with pytest.raises(ValueError, match="leads out"):
            resolve_inside(suite, "link/x", [])
        assert resolve_inside(suite, "link/x", [elsewhere.resolve()]) == elsewhere.resolve() / "x"

    def test_a_suite_that_is_itself_a_link_reads_beside_its_goal(self, tmp_path):
        real = tmp_path / "real"
        real.mkdir()
        (real / "suite.yaml").write_text(MINIMAL)
        (tmp_path / "suite.yaml").symlink_to(real / "suite.yaml")
        assert load_suite(tmp_path / "suite.yaml", {}).folder == real.resolve()


def test_a_check_is_called_by_its_id_else_its_type_else_with_a_number():
    checks = [Check(type="contains"), Check(type="contains", id="x"), Check(type="contains"), Check(type="regex")]
    assert check_ids(checks) == ["contains", "x", "contains-2", "regex"]
    assert check_ids(checks, taken=["contains", "contains-2"]) == ["contains-3", "x", "contains-4", "regex"]


def test_the_name_of_a_suite_file(tmp_path):
    path = tmp_path / "nightly.yaml"
    assert name_of(str(path)) == "nightly"
    path.write_text("name: refunds\n")
    assert name_of(str(path)) == "refunds"
    path.write_text("[")
    assert name_of(str(path)) == "nightly"
