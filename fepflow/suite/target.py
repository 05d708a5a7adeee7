"""The target section of a suite: what is called, with its retries and limits."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticKnownError

from fepflow.documents.messages import did_you_mean
from fepflow.jsonpath.path import has_placeholders
from fepflow.security.addresses import address_problem
from fepflow.suite.values import (
    LIMIT_NAME,
    ByteSize,
    Duration,
    JSONPathText,
    Section,
    Template,
    address_sample,
    checked_template,
    header_problem,
    parsed_json_text,
)

Attribute = Annotated[str, Field(pattern=r"^[^:]+:[^\W\d]\w*(\.[^\W\d]\w*)*$")]
Arguments = Annotated[dict[str, Any], BeforeValidator(checked_template)]


def _function(value: Any) -> Any:
    return {"function": value} if isinstance(value, str) else value


def _body(value: Any) -> Any:
    return parsed_json_text(value) if isinstance(value, str) else value


def _command(value: Any) -> Any:
    try:
        command = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:  # a quotation mark, or an escape, without its end
        raise ValueError(f"cannot be split as a shell would: {str(error).lower()}") from None
    if command == []:
        raise ValueError("must not be empty: it is a program and its arguments")
    return command


Command = Annotated[list[str], BeforeValidator(_command, json_schema_input_type=list[str] | str)]


def _callable(url: str) -> str:
    if problem := address_problem(url):
        raise ValueError(f"{problem[0]} ({problem[1]})")
    return url


Address = Annotated[str, AfterValidator(_callable), Field(json_schema_extra={"pattern": r"^(https?://|\$\{)"})]
"""An address of a server; in the file it may be a reference."""


class HttpTarget(Section):
    """An HTTP endpoint, or an ASGI application, called once for each test case."""

    app: Attribute | None = Field(
        None,
        description="ASGI application to call in the run's process: file.py:name, below the suite's folder, or "
        "package.module:name.",
    )
    url: str | None = Field(
        None,
        repr=False,
        validate_default=True,
        description="Address, http or https; its path and query may contain {{$.path}}. With app, a path or a whole "
        "address; default: /.",
        json_schema_extra={"pattern": r"^(https?://[^\s/]|/|\$\{)"},  # in the file it may be a reference yet
    )
    method: Literal["POST", "PUT", "GET"] = Field("POST", description="Method of the request; GET has no body.")
    headers: dict[str, str] = Field(
        {}, repr=False, description="Request headers; write secrets as ${NAME}; other values may contain {{$.path}}."
    )
    body: Annotated[Template, BeforeValidator(_body)] = Field(
        {"input": "$.test_case.input"},
        description="JSON body, or its text. It may contain JSONPaths over the test case and, in conversations, over "
        "$.turn.input, $.turn.messages, $.turn.number and $.session. Default: {input: $.test_case.input}; in "
        "conversations {input: $.turn.input, messages: $.turn.messages, session: $.session}.",
    )
    session: JSONPathText | None = Field(
        None,
        description="For conversations: path of the session in the first answer, which is $.session of the next turns; "
        "default: an id that fepflow makes up for each conversation.",
    )
    output: JSONPathText | Annotated[list[JSONPathText], Field(min_length=1)] | None = Field(
        None,
        description="Path of the answer; default: all of it. Of several paths, the first that matches counts; $ is all "
        "of it, even if it is not JSON.",
    )
    metadata: dict[str, JSONPathText] = Field({}, description="Other values of the answer to keep, by name.")
    max_bytes: ByteSize = Field(10_000_000, description="Largest answer, decompressed: bytes, or 10MB.")

    @field_validator("url")
    @classmethod
    def _called_address(cls, url: str | None, info: ValidationInfo) -> str | None:
        app = info.data.get("app", "")  # one that is not valid has its own complaint
        if url is None:
            if app is None:
                raise PydanticKnownError("missing")
            return None
        # An application has a host, also where its address is a path only.
        whole = address_sample(f"http://app{url}" if app is not None and url.startswith("/") else url)
        if "{{" in whole or "$." in whole:
            raise ValueError("a path in an address stands in two braces, such as {{$.test_case.id}}")
        _callable(whole)
        return url

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, text in headers.items():
            if problem := header_problem(name, text):
                raise ValueError(problem)
        return headers


_CHAT = """temperature top_p top_k max_tokens max_completion_tokens stop seed frequency_penalty presence_penalty
logit_bias logprobs top_logprobs response_format tool_choice parallel_tool_calls reasoning_effort verbosity thinking
modalities prediction web_search_options service_tier safety_identifier prompt_cache_key store user extra_body"""
_RESPONSES = """temperature top_p max_output_tokens reasoning text tool_choice parallel_tool_calls max_tool_calls
include truncation top_logprobs service_tier safety_identifier prompt_cache_key store user extra_body"""
MODEL_PARAMETERS = {"chat": sorted(_CHAT.split()), "responses": sorted(_RESPONSES.split())}
"""Parameters of a request, by `api`. litellm has hundreds more, which are its own: it could make up answers, or ask
another model."""


MODEL_METADATA = ("tool_calls", "finish_reason", "model", "tokens", "prompt_tokens", "completion_tokens", "usd")
"""Names in the metadata of a model's output; usage that was not reported, and an unknown price, are left out."""


class OpenAITarget(Section):
    """A model behind an OpenAI-compatible endpoint, or of any provider that litellm knows, called once for each test
    case.
    """

    model: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="openai/gpt-5-mini, anthropic/…, ollama/…; with base_url the name that the endpoint knows."
    )
    base_url: Address | None = Field(
        None,
        repr=False,
        description="Address of an OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1.",
    )
    api_key: Annotated[str, Field(min_length=1)] | None = Field(
        None, repr=False, description="Key, as ${NAME}; default without base_url: the provider's environment variable."
    )
    api: Literal["chat", "responses"] = Field("chat", description="Chat completions, or OpenAI's Responses API.")
    system: str | None = Field(
        None, min_length=1, description="System message: a text with {{$.path}} in it, or a file (.md, .txt)."
    )
    prompt: str | None = Field(
        None,
        min_length=1,
        description="User message: a text with {{$.path}} in it, or a file (.md, .txt); default: the input.",
    )
    messages: Annotated[list[dict[str, Any]], Field(min_length=1), BeforeValidator(checked_template)] | None = Field(
        None, description="All messages, instead of prompt; may contain JSONPaths over the test case."
    )
    tools: Annotated[list[dict[str, Any]], BeforeValidator(checked_template)] = Field(
        [], description="Tools that the model may call, in OpenAI's form; fepflow does not call them."
    )
    parameters: Annotated[dict[str, Any], BeforeValidator(checked_template)] = Field(
        {}, description="Parameters of the request: temperature, max_tokens, response_format, …"
    )

    @field_validator("model", "api_key")
    @classmethod
    def _fixed(cls, text: str | None) -> str | None:
        if text is not None and has_placeholders(text):
            raise ValueError("is the same for all test cases: a path has no meaning here")
        return text

    @field_validator("system", "prompt")
    @classmethod
    def _text_or_file(cls, text: str | None) -> str | None:
        if text is not None and prompt_file(text) is None:
            checked_template(text)
            if re.fullmatch(r"(?!\$)[^\s{}]*/[^\s{}]*", text):
                raise ValueError("reads like a file: the name of one ends in .md or .txt")
        return text

    @field_validator("messages")
    @classmethod
    def _with_roles(cls, messages: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for number, message in enumerate(messages or ()):
            if not isinstance(message.get("role"), str) or not message.keys() & {"content", "tool_calls"}:
                raise ValueError(f"[{number}] is not a message, which has a role and a content")
        return messages

    @field_validator("parameters")
    @classmethod
    def _known(cls, parameters: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        known = MODEL_PARAMETERS[info.data.get("api", "chat")]
        for name in parameters:
            if name not in known:
                raise ValueError(f"{name} is not a parameter of a request ({did_you_mean(name, known)})")
        return parameters

    @model_validator(mode="after")
    def _one_or_the_other(self) -> OpenAITarget:
        if self.messages is not None and self.prompt is not None:
            raise ValueError("give prompt, the user message, or messages, all of them")
        return self


def prompt_file(text: str) -> str | None:
    """Return the file that a prompt names: a single line that ends in .md or .txt. Anything else is the text itself."""
    return text if re.fullmatch(r"[^\n{}]+\.(md|txt)", text, re.IGNORECASE) else None


class RecordedTarget(Section):
    """Recorded outputs from a file, which are evaluated without calls."""

    path: str = Field(
        description="File of recorded outputs (.jsonl, .json, .yaml, .csv, each also .gz, .parquet, .xlsx)."
    )
    format: Literal["jsonl", "json", "yaml", "csv", "parquet", "xlsx", "otlp", "atif"] | None = Field(
        None, description="Default: by the file's ending. otlp and atif are traces: spans, and trajectories, in JSON."
    )
    id: JSONPathText | None = Field(None, description="Path of the test case's id in a record; default: by order.")
    repeat: JSONPathText | None = Field(
        None,
        description="Path of the repeat in a record, from 1, together with `id`; default: every repeat gets the same "
        "output.",
    )
    output: JSONPathText = Field(
        "$.value", description="Path of the output in a record; default: value, else actual_output."
    )
    metadata: dict[str, JSONPathText] = Field(
        {}, description="What else to keep of a record, by name; `latency_ms` in place of the time that reading takes."
    )

    @model_validator(mode="after")
    def _repeat_beside_id(self) -> RecordedTarget:
        if self.repeat is not None and self.id is None:
            raise ValueError("repeat needs id: records are told apart by both")
        return self


class PythonTarget(Section):
    """A Python function, class or generator, called once for each test case."""

    function: Attribute = Field(description="file.py:name, below the suite's folder, or package.module:name.")
    input: Template = Field(
        "$.test_case.input",
        description="The only argument; may contain JSONPaths over the test case and, in conversations, over $.turn. "
        "Default: the case's input; in conversations the list of messages, $.turn.messages.",
    )
    arguments: Arguments | None = Field(
        None, description="Keyword arguments instead of input; may contain JSONPaths over the test case."
    )
    isolate: Literal["thread", "process"] = Field(
        "thread",
        description="Where the function runs: in threads of the run, or in separate processes that can be killed.",
    )
    interpreter: str | None = Field(
        None,
        min_length=1,
        description="Python of the agent's own environment, for example ../agent/.venv/bin/python: a path from the "
        "suite's folder, or a name in PATH. The function runs there, in processes that can be killed.",
    )
    output: JSONPathText | None = Field(
        None, description="Path of the answer in the returned value; default: all of it."
    )
    metadata: dict[str, JSONPathText] = Field({}, description="Other parts of the returned value to keep, by name.")
    max_bytes: ByteSize = Field(10_000_000, description="Largest answer, as JSON: bytes, or 10MB.")

    @model_validator(mode="after")
    def _one_or_the_other(self) -> PythonTarget:
        if self.arguments is not None and "input" in self.model_fields_set:
            raise ValueError("give input, the one argument, or arguments, all of them by name")
        if self.interpreter is not None and "isolate" in self.model_fields_set and self.isolate == "thread":
            raise ValueError("an interpreter runs the function in processes of its own: leave isolate out")
        return self


class ProgramOrAddress(Section):
    """A target that speaks a protocol, as a process or at an address."""

    command: Command | None = Field(
        None,
        repr=False,
        description="Program with arguments that speaks ECP on stdin and stdout; a text is split as a shell would.",
    )
    url: Address | None = Field(None, repr=False, description="Address of an agent that speaks ECP over HTTP.")
    headers: dict[str, str] = Field({}, repr=False, description="Request headers; write secrets as ${NAME}.")
    env: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(
        [], description="Names of environment variables that the process gets, besides PATH, HOME and a few others."
    )
    cwd: str = Field(".", description="Working directory of the process, relative to the suite's folder.")
    max_bytes: ByteSize = Field(16_000_000, description="Largest answer: bytes, or 16MB.")

    KIND: ClassVar[str]
    CALLED: ClassVar[str]
    """The system under test, in words to a user."""
    _OF_URL: ClassVar[tuple[str, ...]] = ("headers",)
    _OF_COMMAND: ClassVar[tuple[str, ...]] = ("env", "cwd")

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give command, a program to start, or url, the address of one that runs already")
        others = self._OF_URL if self.url is None else self._OF_COMMAND
        if odd := [name for name in others if name in self.model_fields_set]:
            raise ValueError(f"{', '.join(odd)} has no meaning with {'command' if self.url is None else 'url'}")
        return self


class EcpTarget(ProgramOrAddress):
    """An agent that speaks the Evaluation Context Protocol, as a process or at an address."""

    config: dict[str, Any] = Field(
        {}, repr=False, description="Configuration that agent/initialize sends to the agent."
    )
    require_capabilities: list[str] = Field([], description="Capabilities that the agent must declare.")
    reuse: bool | None = Field(
        None, description="Whether a process serves several scenarios; default: if the agent declares reset."
    )
    parallel: bool = Field(
        False, description="Whether an address serves several scenarios at once, without agent/reset between them."
    )
    step_timeout: Duration | None = Field(None, description="Deadline of a step; default: target.timeout, of them all.")
    start_timeout: Duration | None = Field(
        None, description="Deadline of agent/initialize; default: target.timeout, of a whole scenario."
    )

    KIND = "ecp"
    CALLED = "agent"
    _OF_URL = ("headers", "parallel")
    _OF_COMMAND = ("env", "cwd", "reuse")


class A2aTarget(Section):
    """An agent that speaks the Agent2Agent protocol over JSON-RPC, HTTP+JSON or gRPC, as its card prefers."""

    card: Address = Field(
        repr=False,
        description="Address of the agent's card; without a path: /.well-known/agent-card.json of the host.",
    )
    headers: dict[str, str] = Field({}, repr=False, description="Request headers; write secrets as ${NAME}.")
    hosts: list[Annotated[str, Field(min_length=1)]] = Field(
        [],
        description="Other hosts of the agent that its card may name, as host or host:port. Only these and the card's "
        "own address get the headers.",
    )
    message: Template = Field(
        "$.turn.input",
        description="Message to send: a text, a list of parts, or any other JSON as a data part; may contain JSONPaths "
        "over the test case and the turn. Default: the input.",
    )
    stream: bool | None = Field(None, description="Whether the answer is streamed; default: if the card says so.")
    poll_interval: Duration = Field(1.0, description="Longest wait between two polls of a task that is not streamed.")
    max_bytes: ByteSize = Field(10_000_000, description="Largest answer: bytes, or 10MB.")


class McpTarget(ProgramOrAddress):
    """A server that speaks the Model Context Protocol (stdio or Streamable HTTP). Each test case calls a tool."""

    KIND = "mcp"
    CALLED = "server"


KINDS = ("http", "openai", "python", "ecp", "a2a", "mcp", "recorded")
"""The kinds of targets that a suite file may have, by their names in it."""


class Trace(Section):
    """Traces of the target's calls, which the agent exports by OTLP over HTTP."""

    otlp: Literal[True] = Field(True, description="The protocol by which spans come.")
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        4318, description="Port of 127.0.0.1 on which spans are received during the run. Runs can share it."
    )
    wait: Duration = Field(2.0, description="How long after an answer the spans of its call are waited for, at most.")
    quiet: Duration = Field(
        1.0, description="A trace whose spans are complete is taken when no span has come for so long."
    )

    @property
    def endpoint(self) -> str:
        """The address to which an agent exports its spans."""
        return f"http://127.0.0.1:{self.port}"


class GivenOutputs(Section):
    """Outputs that an interface stored when it created the run; nothing is called."""


class Target(Section):
    """The target, with its retries and limits."""

    http: HttpTarget | None = None
    openai: OpenAITarget | None = None
    python: Annotated[PythonTarget, BeforeValidator(_function, json_schema_input_type=PythonTarget | str)] | None = None
    ecp: EcpTarget | None = None
    a2a: A2aTarget | None = None
    mcp: McpTarget | None = None
    recorded: RecordedTarget | None = None
    given: SkipJsonSchema[GivenOutputs | None] = None
    """Outputs of a run that was requested with them; a suite file cannot have this."""
    trace: Trace | None = Field(
        None, description="Receive the agent's spans, with its tool calls, tokens and cost ($.output.trace)."
    )
    version: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Evaluated version, for example ${GIT_SHA}; fepflow counts its runs."
    )
    timeout: Duration = Field(
        30.0,
        description="Deadline of one whole call; for an ecp agent, of a whole scenario; for conversations, of a turn.",
    )
    connect_timeout: Duration = Field(5.0, description="Deadline of the connection.")
    read_timeout: Duration | None = Field(None, description="Longest silence while reading; default: the timeout.")
    case_timeout: Duration | None = Field(None, description="Deadline of a case: all its attempts and waits together.")
    attempts: Annotated[int, Field(ge=1, le=20)] = Field(
        default_factory=lambda fields: 1 if fields.get("ecp") else 3,
        description="Calls of a case in its batch; default: 3, or 1 for an ecp agent.",
    )
    retries: Annotated[int, Field(ge=0, le=10)] = Field(
        default_factory=lambda fields: 0 if fields.get("ecp") else 2,
        description="Prefect's retries of a case that has failed after its attempts, in a task run of its own; "
        "default: 2, or 0 for an ecp agent.",
    )
    concurrency: Annotated[int, Field(ge=1, le=1000)] = Field(
        16, description="Calls under way at once; fewer while the target says 429 or 503, or does not answer in time."
    )
    requests_per_minute: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Maximum number of calls per minute."
    )
    limits: list[Annotated[str, Field(pattern=f"^{LIMIT_NAME}$")]] = Field(
        [], description="Names of Prefect's global limits that this run shares with others (`fepflow limits`)."
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Target:
        if sum(getattr(self, kind) is not None for kind in (*KINDS, "given")) != 1:
            raise ValueError(f"give exactly one of {', '.join(KINDS)}")
        return self

    @model_validator(mode="after")
    def _can_be_traced(self) -> Target:
        if self.trace is None:
            return self
        if self.recorded is not None:
            raise ValueError("trace is for targets that are called; recorded traces are read with recorded.format")
        if self.ecp is not None and self.ecp.reuse:
            raise ValueError("ecp.reuse does not go with trace: a process gets the trace of one scenario (TRACEPARENT)")
        headers: dict[str, str] = getattr(getattr(self, self.kind), "headers", {})
        if any(name.lower() == "traceparent" for name in headers):
            raise ValueError("with trace, each call has a traceparent of its own: take that header out")
        return self

    @property
    def kind(self) -> str:
        """The name of the section that describes what is called."""
        return next(kind for kind in (*KINDS, "given") if getattr(self, kind) is not None)

    @property
    def calls_at_once(self) -> int:
        """The concurrency, or 1 for an agent that keeps its state at one address."""
        return 1 if self.ecp is not None and self.ecp.url is not None and not self.ecp.parallel else self.concurrency


_CALL_KEYS = ("tool", "arguments", "is_error")


def call_problem(case_input: Any) -> str | None:
    """Return why the input of a test case is not the call of a tool; None if it is one."""
    if not isinstance(case_input, dict):
        return "the input of an mcp test case is an object, {tool: NAME, arguments: {...}}"
    if odd := [str(name)[:60] for name in case_input if name not in _CALL_KEYS]:
        return f"the input has {', '.join(odd[:5])}, but the call of a tool has {', '.join(_CALL_KEYS)} only"
    if not isinstance(case_input.get("tool"), str) or not case_input["tool"]:
        return "the input has no tool: give a tool's name"
    if not isinstance(case_input.get("arguments"), dict | None):
        return "the input's arguments must be an object"
    if not isinstance(case_input.get("is_error", False), bool):
        return "the input's is_error is neither true nor false"
    return None
