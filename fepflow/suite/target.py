"""The target section of a suite: the system under test, and how patiently it is asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticKnownError

from fepflow.http.addresses import address_problem
from fepflow.suite.values import LIMIT_NAME, ByteSize, Duration, JSONPathText, Section, Template, checked_template

Attribute = Annotated[str, Field(pattern=r"^[^:]+:[^\W\d]\w*(\.[^\W\d]\w*)*$")]
Arguments = Annotated[dict[str, Any], BeforeValidator(checked_template)]


def _function(value: Any) -> Any:
    return {"function": value} if isinstance(value, str) else value


class HttpTarget(Section):
    """An HTTP endpoint, or an ASGI application, that is called once a test case."""

    app: Attribute | None = Field(
        None,
        description="ASGI application that is called in process: file.py:name, below the suite's folder, or "
        "package.module:name.",
    )
    url: str | None = Field(
        None,
        repr=False,
        validate_default=True,
        description="Address, http or https; with app only its path or host, default: /.",
        json_schema_extra={"pattern": r"^(https?://[^\s/]|/|\$\{)"},  # in the file it may be a reference yet
    )
    method: Literal["POST", "PUT", "GET"] = "POST"
    headers: dict[str, str] = Field({}, repr=False, description="Request headers; secrets only as ${NAME}.")
    body: Template = Field(
        {"input": "$.test_case.input"}, description="JSON body; JSONPaths over the test case inside."
    )
    output: JSONPathText | None = Field(None, description="Where the answer is; default: all of it.")
    metadata: dict[str, JSONPathText] = Field({}, description="What else to keep of the answer, by name.")
    max_bytes: ByteSize = Field(10_000_000, description="Largest answer, decompressed: bytes, or 10MB.")

    @field_validator("url")
    @classmethod
    def _callable(cls, url: str | None, info: ValidationInfo) -> str | None:
        app = info.data.get("app", "")  # one that is not valid has its own complaint
        if url is None:
            if app is None:
                raise PydanticKnownError("missing")
            return None
        # An application has a host, also where its address is a path only.
        whole = f"http://app{url}" if app is not None and url.startswith("/") else url
        if problem := address_problem(whole):
            raise ValueError(f"{problem[0]} ({problem[1]})")
        return url


class RecordedTarget(Section):
    """Recorded outputs from a file: the evaluation of outputs that exist already."""

    path: str = Field(description="File of recorded outputs (.jsonl, .json, .yaml, .csv, each also .gz).")
    format: Literal["jsonl", "json", "yaml", "csv"] | None = Field(None, description="Default: by the file's ending.")
    id: JSONPathText | None = Field(None, description="A record's test case id; default: by order.")
    output: JSONPathText = Field("$.value", description="Where the output is in a record.")
    metadata: dict[str, JSONPathText] = Field({}, description="What else to keep of a record, by name.")


class PythonTarget(Section):
    """A function, class or generator of Python, which is called once a test case."""

    function: Attribute = Field(description="file.py:name, below the suite's folder, or package.module:name.")
    input: Template = Field("$.test_case.input", description="Its one argument; JSONPaths over the test case inside.")
    arguments: Arguments | None = Field(
        None, description="Keyword arguments in place of the one; JSONPaths over the test case inside."
    )
    isolate: Literal["thread", "process"] = Field(
        "thread", description="Where it runs: in a thread of the run, or in processes of its own, which can be killed."
    )
    output: JSONPathText | None = Field(None, description="Where the answer is in what it returns; default: all of it.")
    metadata: dict[str, JSONPathText] = Field({}, description="What else to keep of what it returns, by name.")
    max_bytes: ByteSize = Field(10_000_000, description="Largest answer, as JSON: bytes, or 10MB.")

    @model_validator(mode="after")
    def _one_or_the_other(self) -> PythonTarget:
        if self.arguments is not None and "input" in self.model_fields_set:
            raise ValueError("give input, the one argument, or arguments, all of them by name")
        return self


class Target(Section):
    """The system under test, and how patiently it is asked."""

    http: HttpTarget | None = None
    python: Annotated[PythonTarget, BeforeValidator(_function, json_schema_input_type=PythonTarget | str)] | None = None
    recorded: RecordedTarget | None = Field(None, validation_alias=AliasChoices("recorded", "scripted"))
    """Its former name was `scripted`, which older suites have."""
    timeout: Duration = Field(30.0, description="Deadline of one whole call.")
    connect_timeout: Duration = Field(5.0, description="Deadline of the connection.")
    read_timeout: Duration | None = Field(None, description="Longest silence while reading; default: the timeout.")
    case_timeout: Duration | None = Field(None, description="Deadline of a case, all its attempts and waits together.")
    attempts: Annotated[int, Field(ge=1, le=20)] = Field(3, description="Calls of a case in its batch.")
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        2, description="Prefect's retries of a case that has failed after its attempts, in a task run of its own."
    )
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        16, description="Calls under way at once; fewer while the target says 429 or 503, or does not answer in time."
    )
    requests_per_minute: Annotated[float, Field(gt=0)] | None = Field(None, description="Calls a minute, at most.")
    limits: list[Annotated[str, Field(pattern=f"^{LIMIT_NAME}$")]] = Field(
        [], description="Global limits of Prefect, by name, that this run shares with others (`fepflow limits`)."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Target:
        if [self.http, self.python, self.recorded].count(None) != 2:
            raise ValueError("give exactly one of http, python, recorded")
        return self
