"""The extras of fepflow. `pip install fepflow` leaves out their packages, because an agent may need other versions."""

from __future__ import annotations

from importlib.util import find_spec

from fepflow.errors import MissingExtraError

EXTRAS = {
    "run": (
        *("prefect", "sqlmodel", "sqlalchemy", "alembic", "litellm", "tenacity", "aiohttp", "aiolimiter", "psutil"),
        *("filelock", "apprise"),
    ),
    "serve": (
        *("fastapi", "uvicorn", "grpc", "grpc_health", "grpc_reflection", "google.protobuf", "hpack", "jwt"),
        *("cryptography", "limits", "jinja2", "markupsafe", "vl_convert"),
    ),
    "postgres": ("psycopg",),
    "dataframe": ("pandas", "pyarrow"),
    "a2a": ("a2a",),
    "mcp": ("mcp",),
    "otel": (
        *("opentelemetry.proto", "google.rpc", "opentelemetry.sdk"),
        "opentelemetry.exporter.otlp.proto.http",
    ),
    "remote": ("fsspec", "s3fs", "gcsfs", "huggingface_hub", "openpyxl"),
    "ragas": ("ragas",),
}
"""The modules that each extra brings. Those that several bring stand with the smallest one."""
_MISSED_WHEN_USED = {"litellm"}
"""Modules whose users ask for them by name. The image of the API, which asks no model, has all of `run` but these."""


def require(extra: str, purpose: str, *modules: str) -> None:
    """Raise MissingExtraError unless an extra is installed, or these modules of it. `purpose` begins the sentence."""
    for module in modules or _needed_at_once(extra):
        if not _is_there(module):
            raise MissingExtraError(sentence(purpose, module, extra))


def is_installed(extra: str, *modules: str) -> bool:
    """Return whether an extra is installed, or these modules of it."""
    return all(map(_is_there, modules or _needed_at_once(extra)))


def of_module(module: str | None) -> str | None:
    """Return the extra that brings a module; None if none does."""
    for extra, modules in EXTRAS.items():
        for known in modules:
            if module is not None and (module == known or module.startswith(f"{known}.")):
                return extra
    return None


def sentence(purpose: str, module: str, extra: str) -> str:
    """Return the message about a missing module, with the command that installs it."""
    return f'{purpose} needs {module}, which is not installed here: pip install "fepflow[{extra}]"'


def _needed_at_once(extra: str) -> list[str]:
    return [module for module in EXTRAS[extra] if module not in _MISSED_WHEN_USED]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the package above it is not there
        return False
