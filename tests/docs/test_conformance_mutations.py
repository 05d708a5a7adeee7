"""Each test that docs/conformance.md names fails when the behaviour that it shows is broken.

The battery breaks one piece of code after the other in a copy of the project, and runs the test there.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.test_conformance_page import ROOT, named

NOT_COPIED = (".venv", ".git", ".hypothesis", "*_cache", "__pycache__", "*.egg-info", "screens")
LIMIT = 900
"""Seconds that one test may take in the copy."""


class Mutation(NamedTuple):
    """A piece of code, and what breaks it."""

    file: str
    old: str
    new: str


REST, ENGINE, PATHS = (
    "tests/fepflow/api/rest/test_fep.py",
    "tests/checks/test_engine.py",
    "tests/fepflow/jsonpath/test_path.py",
)
FEP, PATH, LIMITS = "fepflow/api/evaluations/fep.py", "fepflow/jsonpath/path.py", "fepflow/jsonpath/queries.py"
STORED, AUDIT = "tests/fepflow/store/test_results.py", "tests/fepflow/cli/test_audit_command.py"
MIDDLEWARE, OPENAPI = "tests/fepflow/api/rest/middleware", "tests/fepflow/api/test_fuzz.py"
COMPLIANCE = "tests/conformance/test_jsonpath_compliance.py"

CHECKED = "checks/core/checked_output.py"
NO_WALK = Mutation(PATH, "            return [self.resolve(document)]", "            return []")
LOST_STEP = Mutation(FEP, "                done += 1\n", "                done += 2\n")
BY_NAME = Mutation(
    "fepflow/store/result_rows.py", "return places.get(check_id, len(places)), check_id", "return 0, check_id"
)
OPEN_DOOR = Mutation(
    "fepflow/access/access.py",
    "if asks or not _may_be_here(source):",
    "if not _may_be_here(source):",
)
NO_TLS = Mutation(
    "fepflow/access/listening.py", "if not is_loopback(host) and tls is None and not behind_tls:", "if False:"
)

MUTATIONS: dict[str, Mutation] = {
    f"{REST}::test_any_json_value_is_an_input_an_expected_value_and_an_output": Mutation(
        "fepflow/protocol/test_case.py", 'if "expected" in case.model_fields_set:', "if case.expected:"
    ),
    f"{REST}::test_a_request_that_is_not_valid_is_refused_and_stores_nothing": Mutation(
        "checks/engine.py", "    if outputs is not None and len(test_cases) != len(outputs):", "    if False:"
    ),
    "tests/conformance/test_fep.py::test_an_example_of_the_specification": Mutation(
        "checks/contains.py",
        'return {"passed": decides is self.negate}',
        'return {"passed": decides is not self.negate}',
    ),
    "tests/checks/test_registry.py::test_a_version_is_met_exactly_or_by_the_newest_of_its_major": Mutation(
        "checks/registry.py",
        "return versions[max(fitting, key=parse_version)]",
        "return versions[min(fitting, key=parse_version)]",
    ),
    f"{ENGINE}::test_shared_checks_run_for_every_case": Mutation(
        CHECKED, "*shared] if own else list(shared)", "*shared] if own else []"
    ),
    f"{ENGINE}::test_a_list_a_case_runs_for_that_case": Mutation(
        "checks/engine.py", "{case.id: per_case[index] for", "{case.id: per_case[0] for"
    ),
    f"{REST}::test_checks_may_be_shared_for_each_case_or_inside_of_it": Mutation(
        "fepflow/api/evaluations/requests.py", "return [*(self.test_cases[index].checks or ()), *(", "return [*("
    ),
    f"{STORED}::test_checks_of_a_result_come_as_they_were_declared_a_case_s_own_first": BY_NAME,
    "tests/fepflow/cli/test_check_order.py": BY_NAME,
    "tests/conformance/test_fep.py::test_results_of_all_examples_are_as_the_schemas_have_them": Mutation(
        "checks/core/compiled.py", "CheckResult.trusted(fields)", 'CheckResult.trusted({**fields, "error": None})'
    ),
    f"{REST}::test_outputs_are_checked_and_found_again": Mutation(
        FEP, 'experiment = None if asked["experiment"] is None else', "experiment = None if asked else"
    ),
    f"{PATHS}::test_one_node_resolves_to_its_value": Mutation(
        PATH, "        else:\n            return value\n", "        else:\n            return [value]\n"
    ),
    f"{PATHS}::test_one_backslash_before_dollar_dot_is_taken_off_a_literal": Mutation(
        PATH, 'return text[1:] if text.startswith("\\\\$.") else text', "return text"
    ),
    f"{REST}::test_an_evaluation_is_found_by_its_whole_id_only": Mutation(
        FEP,
        "run_id = canonical(evaluation_id)\n        run = self._store.runs.get(run_id)\n        if run.id != run_id:",
        "run = self._store.runs.get(evaluation_id)\n        if False:",
    ),
    f"{REST}::test_the_service_says_that_it_is_healthy": Mutation(
        "fepflow/api/rest/fep.py", 'JSONResponse({"status": "healthy", ', 'JSONResponse({"status": "well", '
    ),
    f"{OPENAPI}::test_no_request_is_answered_in_another_way_than_the_document_says": Mutation(
        "fepflow/api/rest/http.py", "= (400, 401, ", "= (401, "
    ),
    f"{REST}::test_a_body_that_is_not_read_is_refused": Mutation(
        "fepflow/api/rest/http.py", "        return error.fep_type\n", '        return "bad"\n'
    ),
    f"{REST}::test_what_is_not_there_is_an_error_of_the_same_form": Mutation(
        "fepflow/api/rest/http.py",
        'body = {"error": type_of(status, error), "message": str(error)}',
        'body = {"detail": str(error)}',
    ),
    f"{REST}::test_many_at_once_are_all_answered_and_stored": Mutation(
        FEP, "return Evaluation(uuid4().hex, ", 'return Evaluation("a" * 32, '
    ),
    "tests/checks/test_custom_check_calls.py::test_the_checks_of_a_case_wait_at_the_same_time": Mutation(
        CHECKED,
        "await asyncio.gather(*map(result_of, answers))",
        "[await result_of(answer) for answer in answers]",
    ),
    "tests/checks/test_custom_check_calls.py::test_the_number_of_waiting_cases_is_bounded": Mutation(
        CHECKED, "MAX_WAITING = 64", "MAX_WAITING = 1"
    ),
    "tests/checks/test_model_check_faults.py": Mutation(CHECKED, "MAX_WAITING = 64", "MAX_WAITING = 1"),
    f"{ENGINE}::test_a_bad_check_takes_no_other_down": Mutation(
        "checks/core/compiled.py",
        "        except FepflowError as error:\n            self.error = error\n",
        "        except FepflowError:\n            raise\n",
    ),
    f"{REST}::test_a_failed_check_an_error_and_an_unknown_type_do_not_pass": Mutation(
        "fepflow/verdict/pass_rule.py", 'return "skipped" if check.status == "skip" else "error"', 'return "passed"'
    ),
    f"{ENGINE}::test_an_error_outweighs_everything_and_the_counts_add_up": Mutation(
        "fepflow/protocol/results.py", 'if "error" in seen:', "if False:"
    ),
    "tests/fepflow/protocol/test_models.py::test_an_error_outweighs_a_skip_and_a_skip_the_rest": Mutation(
        "fepflow/protocol/results.py", 'return "skip" if "skip" in seen else "completed"', 'return "completed"'
    ),
    "tests/fepflow/protocol/test_models.py::test_a_summary_counts_each_status": Mutation(
        "fepflow/protocol/results.py", '"skipped_checks": statuses.count("skip")', '"skipped_checks": 0'
    ),
    f"{COMPLIANCE}::test_a_path_finds_what_the_standard_says": NO_WALK,
    f"{COMPLIANCE}::test_the_compliance_suite_is_there_whole": Mutation(
        COMPLIANCE, "STANDARD = standard_cases()", "STANDARD = standard_cases()[:-1]"
    ),
    f"{ENGINE}::test_a_path_that_finds_nothing_is_an_error_of_that_case_only": Mutation(
        PATH,
        '        raise JSONPathError(f"{self.expression!r} found nothing: ',
        '        return None\n        raise JSONPathError(f"{self.expression!r} found nothing: ',
    ),
    "tests/checks/test_exact_match.py": Mutation(
        "checks/exact_match.py", "actual, expected = actual.casefold(), expected.casefold()", "pass"
    ),
    "tests/checks/test_contains.py": Mutation(
        "checks/contains.py", "decides = self.match_all is self.negate", "decides = self.match_all"
    ),
    "tests/checks/test_regex.py": Mutation(
        "checks/core/patterns.py", ".search(text, timeout=limit,", ".match(text, timeout=limit,"
    ),
    "tests/checks/test_threshold.py": Mutation(
        "checks/threshold.py", "self.min_inclusive, self.max_inclusive)", "True, True)"
    ),
    "tests/fepflow/api/grpc/test_proto.py::test_every_message_has_the_fields_of_the_specification": Mutation(
        "fepflow/api/grpc/fep/v1/fep_pb2.py", r"skipped_test_cases\x18\x04", r"skipped_test_cases\x18\x0f"
    ),
    "tests/fepflow/api/grpc/test_proto.py::test_every_rpc_of_the_specification_is_there": Mutation(
        "fepflow/api/grpc/fep/v1/fep_pb2.py", r"\n\x0bHealthCheck\x12", r"\n\x0bHealthChick\x12"
    ),
    "tests/fepflow/api/grpc/test_evaluation.py::test_an_evaluation_is_carried_out_and_found_again": Mutation(
        "fepflow/api/grpc/services.py",
        "raise PendingError(result)\n        return await asyncio.to_thread(result_message, result)",
        "raise PendingError(result)\n        return fep_pb2.EvaluationRunResult()",
    ),
    "tests/fepflow/api/grpc/test_batch.py::test_results_are_in_the_order_of_their_evaluations": Mutation(
        "fepflow/api/grpc/services.py", "for index in sorted(results)],", "for index in sorted(results, reverse=True)],"
    ),
    "tests/e2e/serve/test_grpc_operations.py::test_an_operation_comes_to_the_result_of_an_evaluation": Mutation(
        FEP, 'elif run.is_requested and run.status == "completed":', "elif False:"
    ),
    "tests/checks/test_custom_checks.py::test_a_check_written_for_flex_evals_runs": Mutation(
        "checks/registry.py",
        "_registered.setdefault(name, {})[version] = check_class",
        "_registered.setdefault(name, {})",
    ),
    "tests/checks/test_entry_points.py::test_its_checks_are_there_beside_ones_that_cannot_be_loaded": Mutation(
        "checks/registry.py",
        "loaded.setdefault(entry.name, {}).setdefault(check_class.check_version, check_class)",
        "loaded[entry.name] = {check_class.check_version: check_class}",
    ),
    "tests/checks/test_plugins.py::test_a_plugin_registers_its_checks": Mutation(
        "checks/registry.py", "        spec.loader.exec_module(module)\n", "        pass\n"
    ),
    f"{REST}::test_a_stream_tells_of_each_test_case_and_ends_with_the_result": LOST_STEP,
    f"{REST}::test_a_stream_of_events_says_the_same": Mutation(
        "fepflow/api/rest/fep.py", 'f"event: {event}\\ndata: ', 'f"event: message\\ndata: '
    ),
    "tests/fepflow/api/grpc/test_evaluation.py::test_a_stream_tells_of_each_test_case_and_of_the_result": LOST_STEP,
    f"{COMPLIANCE}::test_a_path_finds_what_our_cases_say": NO_WALK,
    f"{PATHS}::test_plain_paths_do_without_the_jsonpath_libraries": Mutation(
        PATH, "    keys = _plain_keys(expression)\n", "    keys = None\n"
    ),
    f"{PATHS}::test_a_path_is_compiled_once": Mutation(
        PATH, "@lru_cache(maxsize=4096)\ndef compile_path", "def compile_path"
    ),
    f"{PATHS}::test_a_path_over_the_limits_is_a_jsonpath_error": Mutation(
        LIMITS,
        "        except (_LimitError, LibraryError) as error:\n",
        "        except _LimitError:\n            raise\n        except LibraryError as error:\n",
    ),
    "tests/checks/test_registry.py::test_the_checks_of_the_specification_are_there": Mutation(
        "checks/registry.py", "tuple(map(str, CheckType))", "tuple(map(str, CheckType))[1:]"
    ),
    "tests/checks/test_llm_judge.py": Mutation(
        "checks/models/judge_check.py", '"response": sample.response, ', '"response": {}, '
    ),
    "tests/checks/test_semantic_similarity.py": Mutation(
        "checks/semantic_similarity.py", '"cosine": _cosine, "dot": _dot', '"cosine": _cosine, "dot": _cosine'
    ),
    "tests/checks/test_registry.py::test_a_version_that_nothing_meets_is_refused_with_the_list": Mutation(
        "checks/registry.py",
        "return known[0][0] == requested[0][0] and known >= requested",
        "return known >= requested",
    ),
    "tests/fepflow/access/test_access.py::test_a_key_admits_with_its_scopes_and_closes_the_door": OPEN_DOOR,
    "tests/fepflow/access/test_tokens.py::test_a_bad_token_is_refused_and_not_quoted": Mutation(
        "fepflow/access/credentials.py", '"require": ["exp", "aud", "iss", "sub"]', '"require": []'
    ),
    f"{MIDDLEWARE}/test_admission.py::test_without_a_valid_key_nothing_reaches_the_application": OPEN_DOOR,
    "tests/deployments/test_api.py::test_a_key_closes_all_interfaces_of_a_running_process": OPEN_DOOR,
    f"{OPENAPI}::test_no_series_of_requests_is_a_fault_of_the_server": Mutation(
        "fepflow/api/rest/http.py", "for kind in (FepflowError, ", "for kind in ("
    ),
    "tests/fepflow/api/test_fuzz.py::test_any_messages_have_a_true_status": Mutation(
        "fepflow/api/grpc/messages.py",
        'raise InputError(Problem("there is no value", ',
        "raise KeyError(dict(value=0, ",
    ),
    f"{PATHS}::test_a_path_that_takes_too_long_is_a_timeout_within_the_promised_two_seconds": Mutation(
        LIMITS, "            raise CheckTimeoutError(\n", "            raise ValueError(\n"
    ),
    f"{PATHS}::test_a_path_may_find_ten_thousand_nodes_and_no_more": Mutation(
        LIMITS, "MAX_NODES = 10_000", "MAX_NODES = 20_000"
    ),
    "tests/deployments/test_api.py::test_elsewhere_it_listens_with_a_key_and_tls_only": NO_TLS,
    "tests/fepflow/access/test_listening.py::test_elsewhere_needs_a_key_and_tls": NO_TLS,
    "tests/fepflow/access/test_audit_writing.py::test_entries_are_in_the_table_and_in_the_file": Mutation(
        "fepflow/access/access.py", "partial(append_lines, self._folder)", "(lambda entries: None)"
    ),
    "tests/fepflow/api/rest/middleware/test_records.py::test_without_a_record_nothing_is_done": Mutation(
        "fepflow/api/rest/middleware.py",
        "                await self._record(BEGUN)\n",
        "                pass\n",
    ),
    f"{AUDIT}::test_entries_are_shown_newest_first_and_can_do_nothing_to_a_terminal": Mutation(
        "fepflow/cli/administration.py", "for entry in entries:", "for entry in entries[::-1]:"
    ),
}


def test_each_test_of_the_page_has_a_mutation_of_code_that_is_there() -> None:
    assert set(MUTATIONS) == {f"{path}::{name}" if name else path for path, name in named()}
    for test, mutation in MUTATIONS.items():
        assert (ROOT / mutation.file).read_text(encoding="utf-8").count(mutation.old) == 1, test


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project."""
    folder = tmp_path_factory.mktemp("mutated") / "project"
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    return folder


def node_id(test: str) -> str:
    """The name of a test for pytest, with that of its class."""
    path, _, name = test.partition("::")
    if not name:
        return path
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    owner = next((node.name for node in classes if name in {getattr(item, "name", "") for item in node.body}), None)
    return f"{path}::{owner}::{name}" if owner else test


def run(tree: Path, test: str) -> subprocess.CompletedProcess[str]:
    # The copy comes before the installed project, in this process and in those that tests start.
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", node_id(test)]
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.battery
@pytest.mark.timeout(3 * LIMIT)
@pytest.mark.parametrize("test", MUTATIONS)
def test_a_test_of_the_page_fails_when_its_behaviour_is_broken(tree: Path, test: str) -> None:
    mutation = MUTATIONS[test]
    file = tree / mutation.file
    sound = file.read_text(encoding="utf-8")
    before = run(tree, test)
    if before.returncode == 0 and " passed" not in before.stdout:
        pytest.skip(f"{test} is skipped here")
    assert before.returncode == 0, before.stdout[-3_000:]
    file.write_text(sound.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        after = run(tree, test)
    finally:
        file.write_text(sound, encoding="utf-8")
    # 1: something failed, if only the look into the server's log at the end; nothing was kept from being collected.
    assert after.returncode == 1, after.stdout[-3_000:]
