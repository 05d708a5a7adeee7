import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECK_STATUS_UNSPECIFIED: _ClassVar[CheckStatus]
    CHECK_STATUS_COMPLETED: _ClassVar[CheckStatus]
    CHECK_STATUS_ERROR: _ClassVar[CheckStatus]
    CHECK_STATUS_SKIP: _ClassVar[CheckStatus]

class CheckErrorType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHECK_ERROR_TYPE_UNSPECIFIED: _ClassVar[CheckErrorType]
    CHECK_ERROR_TYPE_JSONPATH_ERROR: _ClassVar[CheckErrorType]
    CHECK_ERROR_TYPE_VALIDATION_ERROR: _ClassVar[CheckErrorType]
    CHECK_ERROR_TYPE_TIMEOUT_ERROR: _ClassVar[CheckErrorType]
    CHECK_ERROR_TYPE_UNKNOWN_ERROR: _ClassVar[CheckErrorType]

class TestCaseStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TEST_CASE_STATUS_UNSPECIFIED: _ClassVar[TestCaseStatus]
    TEST_CASE_STATUS_COMPLETED: _ClassVar[TestCaseStatus]
    TEST_CASE_STATUS_ERROR: _ClassVar[TestCaseStatus]
    TEST_CASE_STATUS_SKIP: _ClassVar[TestCaseStatus]

class EvaluationStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVALUATION_STATUS_UNSPECIFIED: _ClassVar[EvaluationStatus]
    EVALUATION_STATUS_COMPLETED: _ClassVar[EvaluationStatus]
    EVALUATION_STATUS_ERROR: _ClassVar[EvaluationStatus]
    EVALUATION_STATUS_SKIP: _ClassVar[EvaluationStatus]
CHECK_STATUS_UNSPECIFIED: CheckStatus
CHECK_STATUS_COMPLETED: CheckStatus
CHECK_STATUS_ERROR: CheckStatus
CHECK_STATUS_SKIP: CheckStatus
CHECK_ERROR_TYPE_UNSPECIFIED: CheckErrorType
CHECK_ERROR_TYPE_JSONPATH_ERROR: CheckErrorType
CHECK_ERROR_TYPE_VALIDATION_ERROR: CheckErrorType
CHECK_ERROR_TYPE_TIMEOUT_ERROR: CheckErrorType
CHECK_ERROR_TYPE_UNKNOWN_ERROR: CheckErrorType
TEST_CASE_STATUS_UNSPECIFIED: TestCaseStatus
TEST_CASE_STATUS_COMPLETED: TestCaseStatus
TEST_CASE_STATUS_ERROR: TestCaseStatus
TEST_CASE_STATUS_SKIP: TestCaseStatus
EVALUATION_STATUS_UNSPECIFIED: EvaluationStatus
EVALUATION_STATUS_COMPLETED: EvaluationStatus
EVALUATION_STATUS_ERROR: EvaluationStatus
EVALUATION_STATUS_SKIP: EvaluationStatus

class EvaluationRequest(_message.Message):
    __slots__ = ("test_cases", "outputs", "checks", "experiment_metadata")
    TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    test_cases: _containers.RepeatedCompositeFieldContainer[TestCase]
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    checks: CheckConfiguration
    experiment_metadata: ExperimentMetadata
    def __init__(self, test_cases: _Optional[_Iterable[_Union[TestCase, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., checks: _Optional[_Union[CheckConfiguration, _Mapping]] = ..., experiment_metadata: _Optional[_Union[ExperimentMetadata, _Mapping]] = ...) -> None: ...

class GetEvaluationRequest(_message.Message):
    __slots__ = ("evaluation_id",)
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    def __init__(self, evaluation_id: _Optional[str] = ...) -> None: ...

class HealthCheckRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthCheckResponse(_message.Message):
    __slots__ = ("status", "version")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    status: str
    version: str
    def __init__(self, status: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class EvaluationProgress(_message.Message):
    __slots__ = ("evaluation_id", "status", "completed_test_cases", "total_test_cases", "final_result", "result", "results_omitted")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    FINAL_RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULTS_OMITTED_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    status: str
    completed_test_cases: int
    total_test_cases: int
    final_result: EvaluationRunResult
    result: TestCaseResult
    results_omitted: bool
    def __init__(self, evaluation_id: _Optional[str] = ..., status: _Optional[str] = ..., completed_test_cases: _Optional[int] = ..., total_test_cases: _Optional[int] = ..., final_result: _Optional[_Union[EvaluationRunResult, _Mapping]] = ..., result: _Optional[_Union[TestCaseResult, _Mapping]] = ..., results_omitted: _Optional[bool] = ...) -> None: ...

class TestCase(_message.Message):
    __slots__ = ("id", "input", "expected", "metadata", "checks", "metadata_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    id: str
    input: InputValue
    expected: OutputValue
    metadata: _struct_pb2.Struct
    checks: CheckList
    metadata_json: str
    def __init__(self, id: _Optional[str] = ..., input: _Optional[_Union[InputValue, _Mapping]] = ..., expected: _Optional[_Union[OutputValue, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., checks: _Optional[_Union[CheckList, _Mapping]] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class InputValue(_message.Message):
    __slots__ = ("string_value", "object_value", "json_value", "json_text")
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_VALUE_FIELD_NUMBER: _ClassVar[int]
    JSON_VALUE_FIELD_NUMBER: _ClassVar[int]
    JSON_TEXT_FIELD_NUMBER: _ClassVar[int]
    string_value: str
    object_value: _struct_pb2.Struct
    json_value: _struct_pb2.Value
    json_text: str
    def __init__(self, string_value: _Optional[str] = ..., object_value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., json_value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., json_text: _Optional[str] = ...) -> None: ...

class OutputValue(_message.Message):
    __slots__ = ("string_value", "object_value", "json_value", "json_text")
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_VALUE_FIELD_NUMBER: _ClassVar[int]
    JSON_VALUE_FIELD_NUMBER: _ClassVar[int]
    JSON_TEXT_FIELD_NUMBER: _ClassVar[int]
    string_value: str
    object_value: _struct_pb2.Struct
    json_value: _struct_pb2.Value
    json_text: str
    def __init__(self, string_value: _Optional[str] = ..., object_value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., json_value: _Optional[_Union[_struct_pb2.Value, _Mapping]] = ..., json_text: _Optional[str] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("value", "metadata", "id", "metadata_json")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    value: OutputValue
    metadata: _struct_pb2.Struct
    id: str
    metadata_json: str
    def __init__(self, value: _Optional[_Union[OutputValue, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., id: _Optional[str] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class CheckConfiguration(_message.Message):
    __slots__ = ("shared_checks", "per_test_case_checks")
    SHARED_CHECKS_FIELD_NUMBER: _ClassVar[int]
    PER_TEST_CASE_CHECKS_FIELD_NUMBER: _ClassVar[int]
    shared_checks: SharedChecks
    per_test_case_checks: PerTestCaseChecks
    def __init__(self, shared_checks: _Optional[_Union[SharedChecks, _Mapping]] = ..., per_test_case_checks: _Optional[_Union[PerTestCaseChecks, _Mapping]] = ...) -> None: ...

class SharedChecks(_message.Message):
    __slots__ = ("checks",)
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[Check]
    def __init__(self, checks: _Optional[_Iterable[_Union[Check, _Mapping]]] = ...) -> None: ...

class PerTestCaseChecks(_message.Message):
    __slots__ = ("check_lists",)
    CHECK_LISTS_FIELD_NUMBER: _ClassVar[int]
    check_lists: _containers.RepeatedCompositeFieldContainer[CheckList]
    def __init__(self, check_lists: _Optional[_Iterable[_Union[CheckList, _Mapping]]] = ...) -> None: ...

class CheckList(_message.Message):
    __slots__ = ("checks",)
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[Check]
    def __init__(self, checks: _Optional[_Iterable[_Union[Check, _Mapping]]] = ...) -> None: ...

class Check(_message.Message):
    __slots__ = ("type", "arguments", "version", "id", "arguments_json")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    type: str
    arguments: _struct_pb2.Struct
    version: str
    id: str
    arguments_json: str
    def __init__(self, type: _Optional[str] = ..., arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., version: _Optional[str] = ..., id: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class ExperimentMetadata(_message.Message):
    __slots__ = ("name", "metadata", "metadata_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    metadata: _struct_pb2.Struct
    metadata_json: str
    def __init__(self, name: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class CheckResult(_message.Message):
    __slots__ = ("check_type", "status", "results", "resolved_arguments", "evaluated_at", "metadata", "error", "results_json", "resolved_arguments_json")
    CHECK_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULTS_JSON_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    check_type: str
    status: CheckStatus
    results: _struct_pb2.Struct
    resolved_arguments: _struct_pb2.Struct
    evaluated_at: _timestamp_pb2.Timestamp
    metadata: CheckResultMetadata
    error: CheckError
    results_json: str
    resolved_arguments_json: str
    def __init__(self, check_type: _Optional[str] = ..., status: _Optional[_Union[CheckStatus, str]] = ..., results: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., resolved_arguments: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., evaluated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metadata: _Optional[_Union[CheckResultMetadata, _Mapping]] = ..., error: _Optional[_Union[CheckError, _Mapping]] = ..., results_json: _Optional[str] = ..., resolved_arguments_json: _Optional[str] = ...) -> None: ...

class CheckResultMetadata(_message.Message):
    __slots__ = ("test_case_id", "test_case_metadata", "output_metadata", "check_version", "additional_metadata", "additional_metadata_json")
    TEST_CASE_ID_FIELD_NUMBER: _ClassVar[int]
    TEST_CASE_METADATA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_METADATA_FIELD_NUMBER: _ClassVar[int]
    CHECK_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDITIONAL_METADATA_FIELD_NUMBER: _ClassVar[int]
    ADDITIONAL_METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    test_case_id: str
    test_case_metadata: _struct_pb2.Struct
    output_metadata: _struct_pb2.Struct
    check_version: str
    additional_metadata: _struct_pb2.Struct
    additional_metadata_json: str
    def __init__(self, test_case_id: _Optional[str] = ..., test_case_metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., output_metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., check_version: _Optional[str] = ..., additional_metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., additional_metadata_json: _Optional[str] = ...) -> None: ...

class CheckError(_message.Message):
    __slots__ = ("type", "message", "recoverable")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECOVERABLE_FIELD_NUMBER: _ClassVar[int]
    type: CheckErrorType
    message: str
    recoverable: bool
    def __init__(self, type: _Optional[_Union[CheckErrorType, str]] = ..., message: _Optional[str] = ..., recoverable: _Optional[bool] = ...) -> None: ...

class ExecutionContext(_message.Message):
    __slots__ = ("test_case", "output")
    TEST_CASE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    test_case: TestCase
    output: Output
    def __init__(self, test_case: _Optional[_Union[TestCase, _Mapping]] = ..., output: _Optional[_Union[Output, _Mapping]] = ...) -> None: ...

class TestCaseResult(_message.Message):
    __slots__ = ("status", "execution_context", "check_results", "summary", "metadata", "metadata_json")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CHECK_RESULTS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    status: TestCaseStatus
    execution_context: ExecutionContext
    check_results: _containers.RepeatedCompositeFieldContainer[CheckResult]
    summary: TestCaseSummary
    metadata: _struct_pb2.Struct
    metadata_json: str
    def __init__(self, status: _Optional[_Union[TestCaseStatus, str]] = ..., execution_context: _Optional[_Union[ExecutionContext, _Mapping]] = ..., check_results: _Optional[_Iterable[_Union[CheckResult, _Mapping]]] = ..., summary: _Optional[_Union[TestCaseSummary, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class TestCaseSummary(_message.Message):
    __slots__ = ("total_checks", "completed_checks", "error_checks", "skipped_checks")
    TOTAL_CHECKS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_CHECKS_FIELD_NUMBER: _ClassVar[int]
    ERROR_CHECKS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_CHECKS_FIELD_NUMBER: _ClassVar[int]
    total_checks: int
    completed_checks: int
    error_checks: int
    skipped_checks: int
    def __init__(self, total_checks: _Optional[int] = ..., completed_checks: _Optional[int] = ..., error_checks: _Optional[int] = ..., skipped_checks: _Optional[int] = ...) -> None: ...

class EvaluationRunResult(_message.Message):
    __slots__ = ("evaluation_id", "started_at", "completed_at", "status", "summary", "results", "experiment", "metadata", "metadata_json")
    EVALUATION_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    evaluation_id: str
    started_at: _timestamp_pb2.Timestamp
    completed_at: _timestamp_pb2.Timestamp
    status: EvaluationStatus
    summary: EvaluationSummary
    results: _containers.RepeatedCompositeFieldContainer[TestCaseResult]
    experiment: ExperimentMetadata
    metadata: _struct_pb2.Struct
    metadata_json: str
    def __init__(self, evaluation_id: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., status: _Optional[_Union[EvaluationStatus, str]] = ..., summary: _Optional[_Union[EvaluationSummary, _Mapping]] = ..., results: _Optional[_Iterable[_Union[TestCaseResult, _Mapping]]] = ..., experiment: _Optional[_Union[ExperimentMetadata, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., metadata_json: _Optional[str] = ...) -> None: ...

class EvaluationSummary(_message.Message):
    __slots__ = ("total_test_cases", "completed_test_cases", "error_test_cases", "skipped_test_cases", "total_checks", "completed_checks", "error_checks", "skipped_checks")
    TOTAL_TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    ERROR_TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_TEST_CASES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CHECKS_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_CHECKS_FIELD_NUMBER: _ClassVar[int]
    ERROR_CHECKS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_CHECKS_FIELD_NUMBER: _ClassVar[int]
    total_test_cases: int
    completed_test_cases: int
    error_test_cases: int
    skipped_test_cases: int
    total_checks: int
    completed_checks: int
    error_checks: int
    skipped_checks: int
    def __init__(self, total_test_cases: _Optional[int] = ..., completed_test_cases: _Optional[int] = ..., error_test_cases: _Optional[int] = ..., skipped_test_cases: _Optional[int] = ..., total_checks: _Optional[int] = ..., completed_checks: _Optional[int] = ..., error_checks: _Optional[int] = ..., skipped_checks: _Optional[int] = ...) -> None: ...

class ExactMatchArguments(_message.Message):
    __slots__ = ("actual", "expected", "negate", "case_sensitive")
    ACTUAL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    NEGATE_FIELD_NUMBER: _ClassVar[int]
    CASE_SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    actual: CheckValue
    expected: CheckValue
    negate: bool
    case_sensitive: bool
    def __init__(self, actual: _Optional[_Union[CheckValue, _Mapping]] = ..., expected: _Optional[_Union[CheckValue, _Mapping]] = ..., negate: _Optional[bool] = ..., case_sensitive: _Optional[bool] = ...) -> None: ...

class ContainsArguments(_message.Message):
    __slots__ = ("text", "phrases", "negate", "case_sensitive")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PHRASES_FIELD_NUMBER: _ClassVar[int]
    NEGATE_FIELD_NUMBER: _ClassVar[int]
    CASE_SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    text: CheckValue
    phrases: _containers.RepeatedScalarFieldContainer[str]
    negate: bool
    case_sensitive: bool
    def __init__(self, text: _Optional[_Union[CheckValue, _Mapping]] = ..., phrases: _Optional[_Iterable[str]] = ..., negate: _Optional[bool] = ..., case_sensitive: _Optional[bool] = ...) -> None: ...

class RegexArguments(_message.Message):
    __slots__ = ("text", "pattern", "negate", "flags")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    NEGATE_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    text: CheckValue
    pattern: str
    negate: bool
    flags: RegexFlags
    def __init__(self, text: _Optional[_Union[CheckValue, _Mapping]] = ..., pattern: _Optional[str] = ..., negate: _Optional[bool] = ..., flags: _Optional[_Union[RegexFlags, _Mapping]] = ...) -> None: ...

class RegexFlags(_message.Message):
    __slots__ = ("case_insensitive", "multiline", "dot_all")
    CASE_INSENSITIVE_FIELD_NUMBER: _ClassVar[int]
    MULTILINE_FIELD_NUMBER: _ClassVar[int]
    DOT_ALL_FIELD_NUMBER: _ClassVar[int]
    case_insensitive: bool
    multiline: bool
    dot_all: bool
    def __init__(self, case_insensitive: _Optional[bool] = ..., multiline: _Optional[bool] = ..., dot_all: _Optional[bool] = ...) -> None: ...

class ThresholdArguments(_message.Message):
    __slots__ = ("value", "min_value", "max_value", "min_inclusive", "max_inclusive", "negate")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_VALUE_FIELD_NUMBER: _ClassVar[int]
    MAX_VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    MAX_INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    NEGATE_FIELD_NUMBER: _ClassVar[int]
    value: CheckValue
    min_value: float
    max_value: float
    min_inclusive: bool
    max_inclusive: bool
    negate: bool
    def __init__(self, value: _Optional[_Union[CheckValue, _Mapping]] = ..., min_value: _Optional[float] = ..., max_value: _Optional[float] = ..., min_inclusive: _Optional[bool] = ..., max_inclusive: _Optional[bool] = ..., negate: _Optional[bool] = ...) -> None: ...

class ThresholdConfig(_message.Message):
    __slots__ = ("min_value", "max_value", "min_inclusive", "max_inclusive", "negate")
    MIN_VALUE_FIELD_NUMBER: _ClassVar[int]
    MAX_VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    MAX_INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    NEGATE_FIELD_NUMBER: _ClassVar[int]
    min_value: float
    max_value: float
    min_inclusive: bool
    max_inclusive: bool
    negate: bool
    def __init__(self, min_value: _Optional[float] = ..., max_value: _Optional[float] = ..., min_inclusive: _Optional[bool] = ..., max_inclusive: _Optional[bool] = ..., negate: _Optional[bool] = ...) -> None: ...

class CheckValue(_message.Message):
    __slots__ = ("literal_string", "literal_number", "literal_bool", "literal_object", "jsonpath_expression")
    LITERAL_STRING_FIELD_NUMBER: _ClassVar[int]
    LITERAL_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LITERAL_BOOL_FIELD_NUMBER: _ClassVar[int]
    LITERAL_OBJECT_FIELD_NUMBER: _ClassVar[int]
    JSONPATH_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    literal_string: str
    literal_number: float
    literal_bool: bool
    literal_object: _struct_pb2.Struct
    jsonpath_expression: str
    def __init__(self, literal_string: _Optional[str] = ..., literal_number: _Optional[float] = ..., literal_bool: _Optional[bool] = ..., literal_object: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., jsonpath_expression: _Optional[str] = ...) -> None: ...

class ExactMatchResult(_message.Message):
    __slots__ = ("passed",)
    PASSED_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    def __init__(self, passed: _Optional[bool] = ...) -> None: ...

class ContainsResult(_message.Message):
    __slots__ = ("passed",)
    PASSED_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    def __init__(self, passed: _Optional[bool] = ...) -> None: ...

class RegexResult(_message.Message):
    __slots__ = ("passed",)
    PASSED_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    def __init__(self, passed: _Optional[bool] = ...) -> None: ...

class ThresholdResult(_message.Message):
    __slots__ = ("passed",)
    PASSED_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    def __init__(self, passed: _Optional[bool] = ...) -> None: ...

class FepError(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    details: _struct_pb2.Struct
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ErrorStatus(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class BatchEvaluationRequest(_message.Message):
    __slots__ = ("evaluations", "options")
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    evaluations: _containers.RepeatedCompositeFieldContainer[EvaluationRequest]
    options: BatchOptions
    def __init__(self, evaluations: _Optional[_Iterable[_Union[EvaluationRequest, _Mapping]]] = ..., options: _Optional[_Union[BatchOptions, _Mapping]] = ...) -> None: ...

class BatchOptions(_message.Message):
    __slots__ = ("max_concurrent", "timeout_ms", "fail_fast")
    MAX_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FAIL_FAST_FIELD_NUMBER: _ClassVar[int]
    max_concurrent: int
    timeout_ms: int
    fail_fast: bool
    def __init__(self, max_concurrent: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., fail_fast: _Optional[bool] = ...) -> None: ...

class BatchEvaluationResponse(_message.Message):
    __slots__ = ("results", "errors", "summary", "result_indexes")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    RESULT_INDEXES_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EvaluationRunResult]
    errors: _containers.RepeatedCompositeFieldContainer[FepError]
    summary: BatchSummary
    result_indexes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, results: _Optional[_Iterable[_Union[EvaluationRunResult, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[FepError, _Mapping]]] = ..., summary: _Optional[_Union[BatchSummary, _Mapping]] = ..., result_indexes: _Optional[_Iterable[int]] = ...) -> None: ...

class BatchSummary(_message.Message):
    __slots__ = ("total_evaluations", "successful_evaluations", "failed_evaluations", "started_at", "completed_at")
    TOTAL_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSFUL_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    FAILED_EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    total_evaluations: int
    successful_evaluations: int
    failed_evaluations: int
    started_at: _timestamp_pb2.Timestamp
    completed_at: _timestamp_pb2.Timestamp
    def __init__(self, total_evaluations: _Optional[int] = ..., successful_evaluations: _Optional[int] = ..., failed_evaluations: _Optional[int] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EvaluationOperation(_message.Message):
    __slots__ = ("operation_id", "status", "created_at", "started_at", "completed_at", "progress", "result", "error", "metadata")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    status: str
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    completed_at: _timestamp_pb2.Timestamp
    progress: EvaluationProgress
    result: EvaluationRunResult
    error: FepError
    metadata: _struct_pb2.Struct
    def __init__(self, operation_id: _Optional[str] = ..., status: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., completed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., progress: _Optional[_Union[EvaluationProgress, _Mapping]] = ..., result: _Optional[_Union[EvaluationRunResult, _Mapping]] = ..., error: _Optional[_Union[FepError, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class GetOperationRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class ListOperationsRequest(_message.Message):
    __slots__ = ("filter", "page_size", "page_token")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    filter: str
    page_size: int
    page_token: str
    def __init__(self, filter: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListOperationsResponse(_message.Message):
    __slots__ = ("operations", "next_page_token")
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[EvaluationOperation]
    next_page_token: str
    def __init__(self, operations: _Optional[_Iterable[_Union[EvaluationOperation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelOperationRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class CancelOperationResponse(_message.Message):
    __slots__ = ("cancelled",)
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    cancelled: bool
    def __init__(self, cancelled: _Optional[bool] = ...) -> None: ...
