"""Settings of the operator (`FEPFLOW_*` variables), and variables of a `.env` that a suite refers to.

A `.env` in the working directory may have come with a cloned repository. So it is never added to the environment, which
Python, every library and every child process read (`PYTHONPATH`, `LD_PRELOAD`, `OPENAI_BASE_URL`): its variables are
looked up one by one, by those who are allowed to. A file that is named with `--env-file` is the user's own word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, Field, ValidationError

from fepflow.errors import InfrastructureError, InputError, Problem
from fepflow.security.addresses import address_problem
from fepflow.security.redaction import remember, secrets_among
from fepflow.text import seconds

ENV_FILE = ".env"
MAX_ENV_BYTES = 100_000

NAMED_FILE = "FEPFLOW_ENV_FILE"
"""Tells children that a file was named: its variables are in their environment already, and no `.env` is read."""

_LOADS_CODE = re.compile(r"LD_(PRELOAD|AUDIT|LIBRARY_PATH)|DYLD_\w+|PYTHON[A-Z]+|BASH_ENV|NODE_OPTIONS", re.IGNORECASE)
"""Variables by which programs load other code. Our advice to name a file must not be how somebody runs theirs."""


@dataclass(frozen=True)
class EnvFile:
    """The variables of a file, and the names of those that were looked up."""

    path: Path
    is_named: bool
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    taken: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        """Return a variable, and note that it was taken."""
        if name in self.variables:
            self.taken.add(name)
        return self.variables.get(name)

    def not_taken(self) -> list[str]:
        """Return the names of the variables that nobody uses as the file has them."""
        return [
            name
            for name, value in self.variables.items()
            if name not in self.taken and os.environ.get(name) != value
            if not self.is_named or _LOADS_CODE.fullmatch(name)  # the others were added to the environment
        ]


BLOCK = "prefect:"
"""Begins a reference to a block of Prefect: `prefect:secret/NAME`, `prefect:variable/NAME`."""

BlockReader = Callable[[str, str], str | None]
"""Returns the value of a block by its kind, `secret` or `variable`, and its name; None if there is none.

Raises InfrastructureError where Prefect cannot be asked.
"""


def _no_reader(kind: str, name: str) -> str | None:
    raise InfrastructureError("no Prefect API is configured here")


class SuiteVariables(Mapping[str, str]):
    """Variables that suites refer to: the environment's, then those of the file; and blocks of Prefect.

    A block is read once a process, when a suite refers to it, by what this process reads blocks with.
    """

    def __init__(self) -> None:
        self._read_block: BlockReader = _no_reader
        self._blocks: dict[str, str | None] = {}

    def read_blocks_with(self, reader: BlockReader) -> None:
        """Read blocks with this from now on, also those that were read already."""
        self._read_block = reader
        self._blocks.clear()

    def _block(self, name: str) -> str:
        if name not in self._blocks:
            kind, _, block = name.removeprefix(BLOCK).partition("/")
            value = self._read_block(kind, block)
            if kind == "secret" and value is not None:
                remember([value])
            self._blocks[name] = value
        if (known := self._blocks[name]) is None:
            raise KeyError(name)
        return known

    def __getitem__(self, name: str) -> str:
        if name.startswith(BLOCK):
            return self._block(name)
        value = current_file().get(name)
        if (value := os.environ.get(name, value)) is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter({**current_file().variables, **os.environ})

    def __len__(self) -> int:
        return len({*current_file().variables, *os.environ})


SUITE_VARIABLES = SuiteVariables()


@cache
def current_file() -> EnvFile:
    """Return the `.env` of the working directory, or the file that was named; without variables where there is none.

    Raises InputError for a file that cannot be read. A folder named `.env` is a virtual environment, and no such file.
    """
    named = os.environ.get(NAMED_FILE)
    path = Path(named or ENV_FILE)
    variables = read_env_file(path) if path.is_file() else {}
    remember(secrets_among(variables))
    return EnvFile(path, bool(named), variables)


def use_folder_file() -> None:
    """Read the `.env` of the working directory from now on."""
    os.environ.pop(NAMED_FILE, None)
    current_file.cache_clear()


def use_named_file(path: Path) -> None:
    """Add a file's variables to the environment, but for those that load code. What is set already stays."""
    for name, value in read_env_file(path).items():
        if not _LOADS_CODE.fullmatch(name):
            os.environ.setdefault(name, value)
    os.environ[NAMED_FILE] = str(path.absolute())
    current_file.cache_clear()


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables that an environment can hold. Raises InputError for a file that cannot be read."""
    from dotenv import dotenv_values  # most folders have none

    from fepflow.documents.files import read_text

    values = dotenv_values(stream=StringIO(read_text(path, str(path), MAX_ENV_BYTES)))
    return {name: value for name, value in values.items() if value is not None and "\0" not in value}


PREFERENCES = ("port", "api_port", "grpc_port", "cache_ttl")
"""Settings that a `.env` in the working directory may hold, too. Only the operator's environment sets the others: a
file that comes with a suite must not decide where data goes, who may call, or what a suite may reach."""

PREFIX = "fepflow_"

JwtAlgorithm = Literal["HS256", "RS256", "ES256", "EdDSA"]


def _base_address(url: str | None) -> str | None:
    """Return an address that paths are appended to and that is harmless in markdown; None of an empty one.

    Raises ValueError. The message shows nothing but the host: an address may hold a password.
    """
    if not url:
        return None
    if problem := address_problem(url):
        raise ValueError(f"{problem[0]} ({problem[1]})")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("an address that is shown to people holds no user and no password")
    if "?" in url or "#" in url:
        raise ValueError("paths are appended to the address: it has neither ? nor #")
    if not parts.netloc.isascii():
        raise ValueError("the host is written in ASCII, such as xn--bcher-kva.example")
    path = quote(parts.path, safe="/%:@~!$&,;=+").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _blob_address(address: str | None) -> str | None:
    """Return an address that the names of blobs are appended to; None of an empty one. Raises ValueError."""
    if not address:
        return None
    scheme, _, rest = address.partition("://")
    if scheme not in ("file", "s3", "gs"):
        raise ValueError("it reads like file:///folder, s3://bucket/prefix or gs://bucket/prefix")
    if any(letter in rest for letter in "?#@"):
        raise ValueError("the address has no user, ? or #: credentials of buckets come from the environment")
    if (scheme == "file") is not rest.startswith("/") or not rest.strip("/"):
        raise ValueError("a folder has three slashes, as in file:///srv/blobs; a bucket has two, as in s3://bucket")
    return address.rstrip("/")


def usual_runs() -> int:
    """Return how many runs a machine executes at once: one more than it has cores, because runs wait for targets."""
    return 1 + (os.cpu_count() or 1)


class Settings(BaseModel):
    """The settings; every one has a default that works on a fresh machine."""

    home: Path = Field(
        default_factory=lambda: Path.home() / ".fepflow",
        description="Folder of the store, the local server's database and logs.",
    )
    store_url: str | None = Field(None, description="SQLAlchemy URL of the store; default: SQLite in the home folder.")
    blobs: Annotated[str | None, AfterValidator(_blob_address)] = Field(
        None,
        description="Address of outputs over 256 kB: file:///folder, s3://bucket/prefix or gs://bucket/prefix; "
        "default: in the store.",
    )
    port: int = Field(4200, ge=1, le=65535, description="Port of the Prefect server that `fepflow up` starts.")
    api_port: int = Field(
        4280, ge=0, le=65535, description="Port of REST and the result pages in `fepflow serve`; 0: any."
    )
    grpc_port: int = Field(4281, ge=0, le=65535, description="Port of gRPC in `fepflow serve`; 0: any.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of /metrics, /livez and /readyz of the worker and the reaper; 0: any; default: none.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address on which the metrics port listens. It asks for no key.")
    log: Literal["text", "json"] = Field("text", description="Form of all logs: text, or a JSON object on each line.")
    data_roots: str = Field("", description="Further folders from which suites may read, separated as in PATH.")
    suite_roots: str = Field(
        "", description="Folders of the suites that deployments may evaluate, separated as in PATH."
    )
    pages_url: Annotated[str | None, AfterValidator(_base_address)] = Field(
        None, description="Address of the result pages, for links to runs."
    )
    smtp_url: str | None = Field(None, description="Mail server of `fepflow alert --email`, smtp:// or smtps://.")
    models: str = Field(
        "", description="Further models that checks in data files may ask, separated by commas; * matches anything."
    )
    agent_hosts: str = Field(
        "",
        description="Addresses, besides public ones, of agents that may be named over the network: hosts, "
        "*.domains and networks, each with or without :port, separated by commas.",
    )
    cache_ttl: Annotated[float, BeforeValidator(seconds)] = Field(
        30 * 86_400.0, gt=0, description="How long stored answers of models are reused, for example 12h or 30d."
    )
    jwt_key_file: Path | None = Field(
        None, description="File with the key that verifies bearer tokens: a secret for HS256, else a PEM public key."
    )
    jwt_algorithm: JwtAlgorithm | None = Field(None, description="Algorithm that signs tokens.")
    jwt_issuer: str | None = Field(None, description="Required `iss` of tokens.")
    jwt_audience: str | None = Field(None, description="Required `aud` of tokens, or one of its members.")
    jwt_max_lifetime: Annotated[float, BeforeValidator(seconds)] = Field(
        86_400.0, gt=0, le=36_500 * 86_400.0, description="Longest lifetime of a token, for example 1h or 7d."
    )
    tls_cert: Path | None = Field(None, description="File with the certificate chain of REST and gRPC, PEM.")
    tls_key: Path | None = Field(None, description="File with the private key of that certificate, PEM.")
    cors_origins: str = Field("", description="Origins whose pages may call REST, separated by commas.")
    starts_per_minute: int = Field(60, ge=1, description="Requests of a caller per minute that start runs.")
    requests_per_minute: int = Field(1200, ge=1, description="All other requests of a caller per minute.")
    max_body: ByteSize = Field(ByteSize(2_000_000), description="Largest request, for example 2MB.")
    traces: Path | None = Field(
        None,
        description="Folder through which `fepflow serve` passes agents' spans to runs; default: a folder of this "
        "user for temporary files.",
    )
    audit_retention: Annotated[float, BeforeValidator(seconds)] = Field(
        90 * 86_400.0,
        gt=0,
        le=36_500 * 86_400.0,
        description="How long entries of the audit log are kept, for example 90d.",
    )

    @property
    def audit_folder(self) -> Path:
        """The audit log of this machine as JSON lines, a file a day."""
        return self.home / "audit"

    suite_runs: int | None = Field(
        None,
        ge=1,
        description="Runs of the deployment `evaluate/suite` at once; default: one more than the number of cores.",
    )
    requested_runs: int | None = Field(
        None,
        ge=1,
        description="Runs at once that were requested over the network; default: one more than the number of cores.",
    )
    waiting_runs: int | None = Field(
        None,
        ge=1,
        description="Requested runs handed to Prefect before they start; the others wait in the store; default: twice "
        "the number of requested runs at once.",
    )
    takeovers: int = Field(
        2, ge=0, le=100, description="How often a worker takes over a deployment's run whose process is gone."
    )
    evalguard_folder: Path | None = Field(
        None, description="Folder of the EvalGuard definitions that the REST API serves: tasks, metrics, thresholds."
    )

    @property
    def most_requested_runs(self) -> int:
        """`requested_runs`, or the default."""
        return self.requested_runs or usual_runs()

    @property
    def most_waiting_runs(self) -> int:
        """`waiting_runs`, by default twice the runs at once, so that a worker always finds the next one."""
        return self.waiting_runs or 2 * self.most_requested_runs

    @property
    def store_address(self) -> str:
        """The store's SQLAlchemy URL."""
        return self.store_url or f"sqlite:///{self.home / 'fepflow.db'}"

    @property
    def server_file(self) -> Path:
        """The file in which `fepflow up` describes the server that it started."""
        return self.home / "server.json"

    @property
    def api_file(self) -> Path:
        """The file in which `fepflow serve` describes the interfaces that it serves."""
        return self.home / "api.json"

    @property
    def login_file(self) -> Path:
        """The file with the login of the local Prefect server, on one line, readable by its owner only."""
        return self.home / "prefect-login"

    @property
    def allowed_roots(self) -> list[Path]:
        """`data_roots`, resolved."""
        return _folders(self.data_roots)

    @property
    def allowed_suite_roots(self) -> list[Path]:
        """`suite_roots`, resolved."""
        return _folders(self.suite_roots)

    @property
    def suite_roots_file(self) -> Path:
        """Folders that `fepflow serve` and `fepflow schedule` have named, one a line."""
        return self.home / "suite-roots"

    @property
    def allowed_models(self) -> list[str]:
        """`models`, one by one."""
        return [name.strip() for name in self.models.split(",") if name.strip()]


def _folders(listed: str) -> list[Path]:
    return [Path(folder).resolve() for folder in listed.split(os.pathsep) if folder]


@cache
def settings() -> Settings:
    """Return the settings of this process, read once. Raises InputError for a variable that cannot be used."""
    try:
        return Settings.model_validate(_variables())
    except ValidationError as error:
        from fepflow.documents.messages import validation_messages

        messages = validation_messages(dict.fromkeys(Settings.model_fields), error)
        problems = [
            Problem(item.message, path=f"FEPFLOW_{item.path[0]}".upper(), advice=item.advice) for item in messages
        ]
        raise InputError(problems) from None


def _variables() -> dict[str, str]:
    """Return the settings of the environment, in capitals or not, and the preferences of the file."""
    env = {name.lower(): value for name, value in os.environ.items()}
    variables = {name: env[f"{PREFIX}{name}"] for name in Settings.model_fields if f"{PREFIX}{name}" in env}
    file = current_file()
    for name in file.variables:
        setting = name.lower().removeprefix(PREFIX)
        if setting in PREFERENCES and setting not in variables and (value := file.get(name)) is not None:
            variables[setting] = value
    return variables
