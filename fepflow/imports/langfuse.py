"""Langfuse: dataset items, dataset runs, traces, observations and scores, as its pages and its API export them.

A file holds one kind of them, or several under their names; a folder holds several files, which are read together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    CaseList,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    ScorerValues,
    known,
    listed,
    mapping,
    member,
    milliseconds,
    moment,
    number_of,
    text_or_none,
)
from fepflow.imports.source import Source
from fepflow.json.values import with_named_floats
from fepflow.text import plural

Row = dict[str, Any]

_ENDINGS = (".json", ".jsonl", ".csv")
_MOST_FILES = 100
_SECTIONS = {
    **dict.fromkeys(("traces", "trace"), "trace"),
    "scores": "score",
    "observations": "observation",
    **dict.fromkeys(("datasetItems", "dataset_items"), "item"),
    **dict.fromkeys(("datasetRunItems", "dataset_run_items"), "run_item"),
    **dict.fromkeys(("datasetRuns", "dataset_runs"), "run"),
}
_EVENTS = {"trace-create": "trace", "score-create": "score", "dataset-run-item-create": "run_item"}
_TRACE_ONLY = frozenset(
    {
        *("userId", "user_id", "sessionId", "session_id", "bookmarked", "public", "release", "environment"),
        *("htmlPath", "html_path", "observationCount", "observations"),
    }
)
_NO_SCORES = frozenset(
    {
        *_TRACE_ONLY,
        *("id", "projectId", "project_id", "timestamp", "name", "version", "tags", "input", "output", "metadata"),
        *("latency", "usage", "inputCost", "outputCost", "totalCost", "total_cost", "level", "errorCount"),
        *("warningCount", "defaultCount", "debugCount", "inputTokens", "outputTokens", "totalTokens", "comments"),
        *("createdAt", "created_at", "updatedAt", "updated_at", "externalId", "scores", "traceId", "usageDetails"),
        *("costDetails", "traceTags", "traceName", "statusMessage"),
    }
)
"""Columns of exported traces that are not scores. Columns of scores have the scores' names, and lists of values."""

_NO_SCORE = "the trace has no score of this name"


def looks_like(source: Source) -> bool:
    """Return whether the source holds rows of Langfuse, or files with such rows."""
    if source.is_folder:
        return any(looks_like(file) for file in _files_in(source))
    data = mapping(source.data)
    if _kind(data) == "run" or _sections_of(data):
        return True
    row = source.first_row()
    return _kind(row) is not None or any(True for _ in _events_of(row))


def _sections_of(data: Row) -> dict[str, str]:
    """Return the kinds of rows in a document that holds several, by their names in it."""
    if _kind(data) is not None:
        return {}  # a trace has its own observations and scores
    sections = {name: kind for name, kind in _SECTIONS.items() if isinstance(data.get(name), list)}
    return sections if {"trace", "item", "run_item", "run"} & set(sections.values()) else {}


def _kind(row: Row) -> str | None:
    def has(*names: str) -> bool:
        return any(name in row for name in names)

    if has("datasetRunItems", "dataset_run_items") and "name" in row:
        return "run"
    if has("datasetItemId", "dataset_item_id") and has("traceId", "trace_id"):
        return "run_item"
    if has("expectedOutput", "expected_output") and has("datasetId", "dataset_id", "datasetName", "dataset_name"):
        return "item"
    if "name" in row and has("value", "stringValue") and has("dataType", "data_type"):
        return "score" if has("traceId", "trace_id") else None
    if has("traceId", "trace_id") and has("startTime", "start_time"):
        return "observation"
    if {"id", "timestamp", "input", "output"} <= row.keys() and len(_TRACE_ONLY & row.keys()) > 1:
        return "trace"
    return None


def _files_in(folder: Source) -> list[Source]:
    paths = [path for path in sorted(folder.path.iterdir()) if path.suffix in _ENDINGS and path.is_file()]
    return [Source(path, f"{folder.name}/{path.name}") for path in paths[:_MOST_FILES]]


def read(source: Source) -> Imported:
    """Read dataset items as cases, and the traces of each dataset run as its outputs; else each trace as a case."""
    notes = Notes(source.name)
    rows = _Rows()
    for file in _files_in(source) if source.is_folder else [source]:
        for line, kind, row in _kinds_of(file):
            if kind is None or not rows.add(kind, row):
                notes.by_hand("a row is of an unknown kind, and is left out", line, file=file.name)
    if not rows.items and not rows.traces:
        message = f"holds {'scores' if rows.scores else 'no dataset items and no traces'}"
        advice = "put the export of traces or dataset items beside it, and import the folder"
        raise InputError(Problem(f"{message}, which no test case can be made of", source.name, advice=advice))
    return _Reader(source, rows, notes).imported()


def _kinds_of(file: Source) -> Iterator[tuple[int | None, str | None, Row]]:
    data = mapping(file.data)
    if sections := _sections_of(data):
        yield from ((None, kind, row) for name, kind in sections.items() for row in data[name] if isinstance(row, dict))
    elif (kind := _kind(data)) is not None:
        yield None, kind, data
    else:
        for line, row in file.rows():
            if "batch" in row:
                yield from ((line, kind, body) for kind, body in _events_of(row))
            else:
                yield line, _kind(row), row


def _events_of(request: Row) -> Iterator[tuple[str, Row]]:
    """Yield the rows in a request to the ingestion API: `{"batch": [{"type": …, "body": …}]}`.

    `fepflow export --to langfuse` writes such a request.
    """
    for event in map(mapping, listed(request.get("batch"))):
        kind, body = _EVENTS.get(str(event.get("type")), "observation"), mapping(event.get("body"))
        if body and (kind == "trace" or "traceId" in body):
            yield kind, {"timestamp": event.get("timestamp"), **body}


@dataclass
class _Rows:
    """All rows by kind; observations and scores by the id of their trace."""

    items: dict[str, Row] = field(default_factory=dict)
    traces: dict[str, Row] = field(default_factory=dict)
    run_items: dict[str | None, list[Row]] = field(default_factory=lambda: defaultdict(list))
    scores: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    observations: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, row: Row) -> bool:
        """Keep a row. Return False if it lacks what identifies it."""
        if kind == "run":
            run_items = listed(member(row, "datasetRunItems", "dataset_run_items"))
            self.run_items[str(row["name"])] += [item for item in run_items if isinstance(item, dict)]
        elif kind == "run_item":
            names = ("datasetRunName", "dataset_run_name", "runName", "run_name", "datasetRunId", "dataset_run_id")
            run = member(row, *names)
            self.run_items[None if run is None else str(run)].append(row)
        elif kind in ("score", "observation"):
            trace_id = member(row, "traceId", "trace_id")
            if trace_id is None:
                return False
            (self.scores if kind == "score" else self.observations)[str(trace_id)].append(row)
        elif row.get("id") is None:
            return False
        elif kind == "item":
            self.items[str(row["id"])] = row
        else:
            trace_id = str(row["id"])
            self.traces[trace_id] = {**self.traces.get(trace_id, {}), **row}
            self.scores[trace_id] += [score for score in listed(row.get("scores")) if isinstance(score, dict)]
            self.observations[trace_id] += filter(None, map(mapping, listed(row.get("observations"))))
        return True

    def roots(self, trace_id: str) -> list[Row]:
        """Return the observations of a trace that have no parent."""
        names = ("parentObservationId", "parent_observation_id")
        return [observation for observation in self.observations[trace_id] if member(observation, *names) is None]


class _Reader:
    def __init__(self, source: Source, rows: _Rows, notes: Notes) -> None:
        self._source, self._rows, self._notes = source, rows, notes
        self._cases = CaseList()

    def imported(self) -> Imported:
        """Return cases and runs."""
        rows, notes = self._rows, self._notes
        archived = {id_ for id_, item in rows.items.items() if str(item.get("status")).upper() == "ARCHIVED"}
        if archived:
            notes.by_hand(f"left out of the dataset: {plural(len(archived), 'archived item')}")
        items = {item_id: item for item_id, item in rows.items.items() if item_id not in archived}
        for item_id, item in items.items():
            self._add_case(item_id, item.get("input"), member(item, "expectedOutput", "expected_output"), item)
        runs = []
        if None in rows.run_items:
            what = "items of dataset runs do not name their run: they are taken for one run"
            notes.by_hand(what, advice="export them with datasetRunName or datasetRunId")
        if rows.run_items:
            runs = [self._run(name, run_items, archived) for name, run_items in rows.run_items.items()]
        elif not items:
            runs = [self._traces_as_cases()]
        elif rows.traces:
            advice = "export the items of the dataset run, too, and import the folder"
            notes.by_hand("traces are left out: nothing says which dataset item each one answers", advice=advice)
        names = {text_or_none(member(item, "datasetName", "dataset_name")) for item in items.values()}
        name = names.pop() if len(names) == 1 else None
        notes.came(
            test_case=len(self._cases),
            output=sum(len(run.outputs) for run in runs),
            scorer=len({name for run in runs for name in run.checks}),
        )
        return Imported("langfuse", None, str(name or self._source.path.stem), notes, self._cases, runs=runs)

    def _add_case(self, case_id: str, case_input: Any, expected: Any, row: Row) -> int:
        case = {**known(id=case_id, expected=expected), "input": case_input}
        metadata = row.get("metadata")
        if metadata not in (None, {}, []):
            case["metadata"] = metadata if isinstance(metadata, dict) else {"metadata": metadata}
        return self._cases.place(case_id, with_named_floats(case))

    def _run(self, name: str | None, run_items: list[Row], archived: set[str]) -> ImportedRun:
        run, values = ImportedRun(), ScorerValues(self._notes)
        lost = 0
        for run_item in run_items:
            item_id = str(member(run_item, "datasetItemId", "dataset_item_id"))
            if item_id in archived:
                continue
            trace_id = str(member(run_item, "traceId", "trace_id"))
            trace = self._rows.traces.get(trace_id)
            index = self._cases.places.get(item_id)
            if index is None:
                self._notes.by_hand("a dataset item is not in the export: its case has the input of the trace")
                index = self._add_case(item_id, (trace or {}).get("input"), None, {})
            repeat = run.next_repeat(index)
            if trace is None:
                lost += 1
            else:
                observation = member(run_item, "observationId", "observation_id")
                run.outputs.append(self._output(trace_id, trace, index, repeat, values, observation))
        if lost:
            what = f"not in the export, and missing in the run: {plural(lost, 'trace')} of a dataset run"
            self._notes.by_hand(what, path=name, advice="export the traces, too, and import the folder")
        run.variant = {"run": name} if name and len(self._rows.run_items) > 1 else None
        run.times = [moment(member(run_item, "createdAt", "created_at")) for run_item in run_items]
        run.checks = values.settle(run.outputs, _NO_SCORE)
        return run

    def _traces_as_cases(self) -> ImportedRun:
        run, values = ImportedRun(), ScorerValues(self._notes)
        for trace_id, trace in self._rows.traces.items():
            index = self._add_case(trace_id, self._of_root(trace_id, trace, "input"), None, {})
            run.outputs.append(self._output(trace_id, trace, index, 0, values, None))
            run.times.append(moment(trace.get("timestamp")))
        run.checks = values.settle(run.outputs, _NO_SCORE)
        return run

    def _output(
        self, trace_id: str, trace: Row, index: int, repeat: int, values: ScorerValues, observation: Any
    ) -> ImportedOutput:
        metadata = self._metadata(trace_id, trace)
        value = self._of_root(trace_id, trace, "output")
        error = self._error(trace_id, trace, value)
        scores = dict(self._scores(trace_id, trace, values, observation))
        if error is not None:
            if scores:
                self._notes.by_hand("a trace that ended in an error has scores: they are left out", path=trace_id)
            value, scores = None, {}
        return ImportedOutput(index, with_named_floats(value), repeat, error, metadata, scores)

    def _of_root(self, trace_id: str, trace: Row, name: str) -> Any:
        """Return the input or output of a trace; if it has none, that of its only root."""
        roots = self._rows.roots(trace_id)
        value = trace.get(name)
        return roots[0].get(name) if value is None and len(roots) == 1 else value

    def _error(self, trace_id: str, trace: Row, value: Any) -> str | None:
        def failed(observations: list[Row]) -> list[Row]:
            return [observation for observation in observations if observation.get("level") == "ERROR"]

        errors = failed(self._rows.roots(trace_id)) or (
            failed(self._rows.observations[trace_id]) if value is None else []
        )
        if errors:
            return str(member(errors[0], "statusMessage", "status_message") or "the trace ended in an error")
        if value is None:
            return "an observation of the trace ended in an error" if trace.get("level") == "ERROR" else "no output"
        return None

    def _metadata(self, trace_id: str, trace: Row) -> Row:
        observations = self._rows.observations[trace_id]
        total = mapping(trace.get("usage")).get("totalTokens")
        models = {observation["model"] for observation in observations if isinstance(observation.get("model"), str)}
        tools = [
            {
                "name": str(observation.get("name")),
                "arguments": observation.get("input"),
                "result": observation.get("output"),
            }
            for observation in observations
            if observation.get("type") == "TOOL"
        ]
        metadata: Row = with_named_floats(
            known(
                trace_id=trace_id,
                latency_ms=milliseconds(number_of(trace.get("latency"))),
                usd=number_of(member(trace, "totalCost", "total_cost")),
                tokens=number_of(member(trace, "totalTokens", "total_tokens")) or number_of(total),
                model=models.pop() if len(models) == 1 else None,
                tool_calls=tools or None,
            )
        )
        return metadata

    def _scores(self, trace_id: str, trace: Row, values: ScorerValues, observation: Any) -> Iterator[tuple[str, Score]]:
        by_name: dict[str, list[tuple[Any, str | None]]] = defaultdict(list)
        roots = {None, observation, *(root.get("id") for root in self._rows.roots(trace_id))}
        for score in self._rows.scores[trace_id]:
            if member(score, "observationId", "observation_id") not in roots:
                what = "scores of observations within a trace are left out: they do not judge its output"
                self._notes.by_hand(what, path=str(score.get("name")))
            elif score.get("name") is not None:
                comment = score.get("comment")
                by_name[str(score["name"])].append((_value(score), comment if isinstance(comment, str) else None))
        for name, column in trace.items():
            is_of_scores = name not in _NO_SCORES and isinstance(column, list) and column
            if is_of_scores and all(isinstance(value, str | int | float) for value in column):
                by_name[name] += [(value, None) for value in column]
        for name, recorded in by_name.items():
            scores = [values.read(name, value, comment) for value, comment in recorded]
            if len({(score.passed, score.score, score.error) for score in scores}) == 1:
                yield name, scores[-1]
            else:
                what = f"a trace has several scores {name!r}, which differ: the check is an error"
                self._notes.by_hand(what, path=trace_id)
                yield name, Score(error=f"the trace has {len(scores)} scores of this name, which differ")


def _value(score: Row) -> Any:
    """Return a score's value by its type: yes or no, a number, or the text of a category."""
    kind, text = member(score, "dataType", "data_type"), member(score, "stringValue", "string_value")
    number = number_of(score.get("value"))
    if kind == "BOOLEAN":
        if number in (0, 1):
            return number == 1
        return {"true": True, "false": False}.get(str(member(score, "stringValue", "value")).lower())
    if kind in (None, "NUMERIC"):
        return number if number is not None else text
    return text if text is not None else score.get("value")
