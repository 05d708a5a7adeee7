"""A manifest's target as the target of a suite."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fepflow.manifest.parts import PartsReader
from fepflow.suite.env_vars import expand

_OPERATORS = {"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"}


def target_section(
    reader: PartsReader, manifest: Mapping[str, Any], steps: int, folder: Path, env: Mapping[str, str]
) -> dict[str, Any]:
    """The target of a suite in `folder` whose longest scenario has so many steps."""
    text, seconds = manifest["target"], manifest.get("timeout", 30.0)
    ecp: dict[str, Any] = {"step_timeout": seconds, "start_timeout": seconds}
    if re.match("https?://", expand(text, ("target",), env, []), re.IGNORECASE):
        ecp["url"] = text
    else:
        ecp["command"] = ["/bin/sh", "-c", text] if manifest.get("shell") else text
        if not manifest.get("shell") and _is_for_a_shell(text):
            reader.warn(("target",), "is written for a shell, and none runs it", "add shell: true to the manifest")
        if (cwd := _folder_of_files(text, folder)) is not None:
            ecp["cwd"] = cwd
            where = f"the agent is started in {cwd}, where the files are that its command names"
            reader.warn(("target",), where)
    if manifest.get("env"):
        ecp["env"] = manifest["env"]
    section = {"ecp": ecp, "timeout": seconds * (steps + 2)}
    return {**section, "attempts": attempts} if (attempts := manifest.get("attempts")) else section


def _is_for_a_shell(command: str) -> bool:
    """Whether a command has an operator of a shell between its words, or begins with a variable's value."""
    try:
        words = shlex.split(command)
    except ValueError:  # an error of its own
        return False
    return bool(_OPERATORS & set(words)) or bool(words and re.match(r"[A-Za-z_]\w*=", words[0]))


def _folder_of_files(command: str, folder: Path) -> str | None:
    """The nearest folder above the manifest's own in which a file is that the command names and its own lacks.

    Manifests are often run from the root of a repository, and name their agent from there.
    """
    try:
        names = [name for name in shlex.split(command)[1:] if "/" in name and not name.startswith(("-", "/"))]
    except ValueError:  # an error of its own
        return None
    if not names or any((folder / name).exists() for name in names):
        return None
    above = folder.resolve().parents
    places = ("/".join([".."] * (level + 1)) for level, place in enumerate(above) if (place / names[0]).is_file())
    return next(places, None)
