"""What the operator configures: `FEPFLOW_*` variables, and where Prefect's API is."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from fepflow.durations import seconds
from fepflow.errors import InputError, Problem
from fepflow.files import open_regular

OPERATORS_VARIABLES = frozenset({"FEPFLOW_DATA_ROOTS", "FEPFLOW_MODELS", "FEPFLOW_SUITE_ROOTS"})
"""What widens a suite's reach: nothing that comes with a suite sets it, such as a `.env` beside it."""


class Settings(BaseSettings):
    """Every setting has a default that works on a fresh machine."""

    model_config = SettingsConfigDict(env_prefix="FEPFLOW_")

    home: Path = Field(
        Path.home() / ".fepflow", description="Folder of the store, the local server's database and logs."
    )
    store_url: str | None = Field(None, description="SQLAlchemy URL of the store; default: SQLite in the home folder.")
    port: int = Field(4200, ge=1, le=65535, description="Port of the Prefect server that `fepflow up` starts.")
    data_roots: str = Field("", description="More folders from which suites may read, separated as in PATH.")
    suite_roots: str = Field("", description="Folders below which deployments evaluate suites, separated as in PATH.")
    smtp_url: str | None = Field(None, description="Mail server of `fepflow alert --email`, smtp:// or smtps://.")
    models: str = Field(
        "", description="More models that checks in data files may ask, separated by commas; * stands for anything."
    )
    cache_ttl: Annotated[float, BeforeValidator(seconds)] = Field(
        30 * 86_400.0, gt=0, description="How long answers of models are used again, such as 12h or 30d."
    )

    @property
    def store_address(self) -> str:
        """The store's SQLAlchemy URL."""
        return self.store_url or f"sqlite:///{self.home / 'fepflow.db'}"

    @property
    def server_file(self) -> Path:
        """What `fepflow up` writes down about the server that it started."""
        return self.home / "server.json"

    @property
    def login_file(self) -> Path:
        """What the local Prefect server asks its callers for, on one line, for its owner only."""
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
    """The settings of this process, read once. Raises InputError for a variable that cannot be used."""
    try:
        return Settings()
    except ValidationError as error:
        from fepflow.complaints import complaints

        found = complaints(dict.fromkeys(Settings.model_fields), error)
        problems = [Problem(one.message, path=f"FEPFLOW_{one.path[0]}".upper(), advice=one.advice) for one in found]
        raise InputError(problems) from None


def configured_prefect_api() -> str | None:
    """The Prefect API that the environment or the active profile names, or None.

    Read without importing prefect, which takes its settings once, at import: whoever decides for the local server
    has to set `PREFECT_API_URL` before.
    """
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    home = Path(os.environ.get("PREFECT_HOME", Path.home() / ".prefect"))
    path = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
    try:
        with open_regular(path) as file:
            document = tomllib.load(file)
    except (OSError, ValueError):
        return None
    active = os.environ.get("PREFECT_PROFILE") or document.get("active")
    profile = document.get("profiles", {}).get(active, {})
    url = profile.get("PREFECT_API_URL")
    return str(url) if url else None
