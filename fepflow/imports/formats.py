"""The formats of other tools that can be imported, and which one a file is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fepflow.documents.messages import did_you_mean
from fepflow.errors import InputError, Problem, UserError
from fepflow.imports import (
    braintrust,
    deepeval,
    harbor,
    inspect_ai,
    langfuse,
    lm_eval,
    openai_evals,
    promptfoo_config,
    promptfoo_results,
    pydantic_evals,
)
from fepflow.imports.imported import Imported
from fepflow.imports.source import Source


@dataclass(frozen=True)
class Format:
    """A format of another tool. `read` refuses unknown versions. `what` says in a few words which files are meant."""

    name: str
    what: str
    looks_like: Callable[[Source], bool]
    read: Callable[[Source], Imported]


_FORMATS = (
    Format("inspect_ai", "logs (.eval, .json), folders of logs", inspect_ai.looks_like, inspect_ai.read),
    Format("lm-eval", "samples_TASK_….jsonl", lm_eval.looks_like, lm_eval.read),
    Format("langfuse", "exports of datasets, traces, scores; folders", langfuse.looks_like, langfuse.read),
    Format("harbor", "folders of jobs, result.json", harbor.looks_like, harbor.read),
    Format("atif", "trajectories (.json, .jsonl)", harbor.looks_like_atif, harbor.read_atif),
    Format("braintrust", "exports of experiments and datasets", braintrust.looks_like, braintrust.read),
    Format(
        "promptfoo-results",
        "results of promptfoo eval -o (.json, .yaml, .jsonl)",
        promptfoo_results.looks_like,
        promptfoo_results.read,
    ),
    Format(
        "promptfoo",
        "configs, lists of tests, and CSV with __expected",
        promptfoo_config.looks_like,
        promptfoo_config.read,
    ),
    Format("pydantic-evals", "datasets and reports", pydantic_evals.looks_like, pydantic_evals.read),
    Format("openai-evals", "samples, items, logs, output items", openai_evals.looks_like, openai_evals.read),
    Format("deepeval", "goldens and datasets (.json, .jsonl, .csv), test runs", deepeval.looks_like, deepeval.read),
)
FORMATS = {format.name: format for format in _FORMATS}
"""The formats by name, in the order in which they are tried."""


def read_import(path: Path, name: str | None = None, format_name: str | None = None) -> tuple[Source, Imported]:
    """Read a file or folder of another tool. Without `format_name`, the format is recognized by the content.

    Raises UserError for an unknown format name, InputError for a file in no format, or in an unknown version of one.
    """
    source = Source(path, name or str(path))
    if not path.exists():
        raise InputError(Problem("there is no such file", source.name, advice="check the path"))
    if format_name is not None:
        if format_name not in FORMATS:
            raise UserError(f"{format_name} is not a format ({did_you_mean(format_name, list(FORMATS))}).")
        return source, FORMATS[format_name].read(source)
    if source.head.startswith(b"version https://git-lfs.github.com/spec/"):
        message = "is a pointer of Git LFS, and not the file that it stands for"
        raise InputError(Problem(message, source.name, advice="fetch that: git lfs pull"))
    _ = source.data, source.first_record  # an error of reading it comes before the question of its format
    for format in FORMATS.values():
        if format.looks_like(source):
            return source, format.read(source)
    known = "; ".join(f"{format.name}: {format.what}" for format in FORMATS.values())
    advice = f"known are {known}; name one with --as, or, for test cases without checks, name the file in test_cases"
    raise InputError(Problem("is in no format that can be imported", source.name, advice=advice))
