"""Harbor: the trials of a job (`result.json` in each trial's folder), and trajectories in ATIF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    CaseList,
    CollectedRun,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    finite_number,
    known,
    mapping,
    moment,
)
from fepflow.imports.source import Source
from fepflow.imports.values import ScorerValues, milliseconds, missing_cases, plain_json
from fepflow.text import brief, plural
from fepflow.traces.recorded import atif_records

NAME = "harbor"
ATIF = "atif"

_RESULT = "result.json"
_TRAJECTORY = Path("agent", "trajectory.json")
_VERSION = 1
_MOST_TRIALS = 200_000


def looks_like(source: Source) -> bool:
    """Return whether the source is a job's or a trial's folder, or the result of one."""
    if source.is_folder:
        return any(True for _ in _results_in(source.path))
    return _is_trial(source.data) or _is_job(source.data)


def looks_like_atif(source: Source) -> bool:
    """Return whether the source holds trajectories."""
    return any(
        isinstance(data, dict) and str(data.get("schema_version", "")).startswith("ATIF-")
        for data in (source.data, source.first_record)
    )


def _is_trial(data: Any) -> bool:
    return isinstance(data, dict) and {"task_name", "trial_name"} <= data.keys()


def _is_job(data: Any) -> bool:
    return isinstance(data, dict) and {"n_total_trials", "stats"} <= data.keys()


def _results_in(folder: Path) -> Iterator[Path]:
    """Yield the results of a job's folder and of its trials' folders; links are not followed."""
    for path in (folder, *sorted(folder.iterdir())):
        result = path / _RESULT
        if (path == folder or not path.is_symlink()) and path.is_dir() and result.is_file() and not result.is_symlink():
            yield result


def read(source: Source) -> Imported:
    """Read each trial as an output of its task, and each reward as a check; agents and models are runs of their own."""
    notes = Notes(source.name)
    reader = _Reader(source, notes)
    if not source.is_folder and _is_trial(source.data):
        reader.add(source.data, source.path)
        return reader.imported()
    folder = source.path if source.is_folder else source.path.parent
    job: dict[str, Any] = {}
    for number, path in enumerate(_results_in(folder)):
        if number > _MOST_TRIALS:
            raise InputError(Problem(f"holds more than {_MOST_TRIALS:,} trials", source.name))
        name = str(path.relative_to(folder))
        try:
            data = Source(path, name).data
        except InputError as error:
            notes.by_hand(f"the result of a trial cannot be read, and is left out: {brief(str(error), 200)}", file=name)
            continue
        if _is_trial(data):
            reader.add(data, path)
        elif _is_job(data):
            job = data
    for trial in job.get("trial_results") or () if not reader.trials else ():
        if _is_trial(trial):
            reader.add(trial, None)
    if not reader.trials:
        raise InputError(Problem("holds no result of a trial", source.name, advice="name the job's folder"))
    expected = job.get("n_total_trials")
    return reader.imported(expected if isinstance(expected, int) else 0)


class _Reader:
    def __init__(self, source: Source, notes: Notes) -> None:
        self._source, self._notes = source, notes
        self._cases = CaseList()
        self._checksums: dict[str, str] = {}
        self._runs: dict[tuple[str, str], tuple[CollectedRun, ScorerValues]] = {}
        self.trials = 0

    def add(self, trial: dict[str, Any], path: Path | None) -> None:
        """Add a trial. Its trajectory stands beside its result, if the agent wrote one."""
        if trial.get("schema_version", _VERSION) != _VERSION:
            message = (
                f"is a result of Harbor in version {brief(str(trial['schema_version']), 40)}; {_VERSION} can be read"
            )
            raise InputError(Problem(message, self._source.name if path is None else str(path), path="schema_version"))
        self.trials += 1
        record = self._trajectory(path)
        index = self._case(trial, record)
        agent = mapping(trial.get("agent_info"))
        model = mapping(agent.get("model_info"))
        about = (str(agent.get("name") or "agent"), str(model.get("name") or ""))
        run, values = self._runs.setdefault(about, (CollectedRun(), ScorerValues(self._notes)))
        repeat = run.next_repeat(index)
        run.times += [moment(trial.get("started_at")), moment(trial.get("finished_at"))]
        error, rewards = _error(trial), _rewards(trial)
        scores = {name: values.read(name, value) for name, value in rewards.items()}
        if error is None and not scores:
            error = "the trial ended without a reward"
        value = record.get("value")
        if error is not None:
            if scores:
                advice = (
                    "Harbor counts some of them, such as an agent's timeout, by the reward: compare with its own result"
                )
                self._notes.by_hand(
                    "a trial that ended in an exception has a reward: it is an error here", advice=advice
                )
            value, scores = None, {}
        metadata = _metadata(trial, record, model.get("name"))
        run.outputs.append(ImportedOutput(index, value, repeat, error, metadata, scores))

    def _trajectory(self, path: Path | None) -> dict[str, Any]:
        beside = path.parent / _TRAJECTORY if path is not None else None
        if beside is None or not beside.is_file() or beside.is_symlink():
            return {}
        name = f"{beside.parent.parent.name}/{_TRAJECTORY}"
        try:
            records = list(_atif(Source(beside, name), self._notes))
        except InputError as error:
            self._notes.by_hand(f"a trajectory cannot be read, and is left out: {brief(str(error), 200)}", file=name)
            return {}
        return records[0][1] if records else {}

    def _case(self, trial: dict[str, Any], record: dict[str, Any]) -> int:
        name, checksum = str(trial["task_name"]), str(trial.get("task_checksum") or "")
        about = known(source=trial.get("source")) or None
        index = self._cases.place(name, {"id": name, "input": name, **known(metadata=about)})
        if "input" in record and self._cases[index]["input"] == name:
            self._cases[index]["input"] = record["input"]
        if checksum != self._checksums.setdefault(name, checksum):
            self._notes.by_hand(
                f"trials of the task {name} are of different versions of it: they are one test case here"
            )
        return index

    def imported(self, expected: int = 0) -> Imported:
        """Return the tasks as a suite, with a run of each agent and model. `expected` is the job's number of trials."""
        repeats_of_all = sum(max(run.repeats.values()) for run, _ in self._runs.values())
        if expected > self.trials:
            what = f"of {plural(expected, 'trial')} of the job {self.trials:,} have a result: the others are missing"
            self._notes.by_hand(what)
            self._cases += missing_cases(-(-expected // repeats_of_all) - len(self._cases))
        runs = []
        for (agent, model), (run, values) in self._runs.items():
            # Harbor counts a task as solved by its only reward, if that is 0 or 1.
            yes_or_no = values.names if len(values.names) == 1 else ()
            checks = values.settle(run.outputs, "the trial has no reward of this name", yes_or_no)
            variant = known(agent=agent, model=model or None) if len(self._runs) > 1 else None
            runs.append(run.run(checks, variant))
        self._notes.came(
            test_case=len(self._cases), output=self.trials, reward=len({name for each in runs for name in each.checks})
        )
        name = (self._source.path if self._source.is_folder else self._source.path.parent).resolve().name
        return Imported(NAME, str(_VERSION), name or "harbor", self._notes, self._cases, runs=runs)


def _error(trial: dict[str, Any]) -> str | None:
    """Return the first exception of a trial or of one of its steps, without its traceback."""
    steps = trial.get("step_results")
    for part in (trial, *(steps if isinstance(steps, list) else ())):
        info = part.get("exception_info") if isinstance(part, dict) else None
        if info is not None:
            if not isinstance(info, dict):
                return str(info)
            return f"{info.get('exception_type', 'Exception')}: {info.get('exception_message', '')}"
    return None


def _rewards(trial: dict[str, Any]) -> dict[str, Any]:
    result = trial.get("verifier_result")
    if not isinstance(result, dict):
        return {}
    rewards = result.get("rewards", result.get("reward"))
    if isinstance(rewards, dict):
        return {str(name): value for name, value in rewards.items()}
    return {} if rewards is None else {"reward": rewards}


def _metadata(trial: dict[str, Any], record: dict[str, Any], model: Any) -> dict[str, Any]:
    agent = mapping(trial.get("agent_result"))
    parts = [finite_number(agent.get(name)) for name in ("n_input_tokens", "n_output_tokens")]
    timing = mapping(trial.get("agent_execution"))
    began, ended = moment(timing.get("started_at")), moment(timing.get("finished_at"))
    found = known(
        trial=trial["trial_name"],
        model=model,
        latency_ms=milliseconds((ended - began).total_seconds()) if began and ended else None,
        tokens=None if None in parts else sum(part for part in parts if part is not None),
        usd=finite_number(agent.get("cost_usd")),
        trace=record.get("trace"),
    )
    plain: dict[str, Any] = plain_json(found)
    return plain


def _atif(source: Source, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the trajectories of a file as records, see `fepflow.traces.recorded`."""
    data = source.data if source.is_document else None
    listed = list(enumerate(data, 1)) if isinstance(data, list) else [(1, data)]
    documents = listed if source.is_document else source.records()

    def complain(what: str, line: int) -> None:
        notes.by_hand(f"{what}; it is left out", line, file=source.name)

    yield from atif_records(documents, complain)


def read_atif(source: Source) -> Imported:
    """Read each trajectory as a test case with its output: nothing has judged them yet."""
    notes = Notes(source.name)
    cases: list[dict[str, Any]] = []
    outputs = []
    for line, record in _atif(source, notes):
        index = len(cases)
        case = {"id": str(record["id"])} if record.get("id") else {}
        cases.append(plain_json({**case, "input": record.get("input")}))
        trace = plain_json(record["trace"])
        metadata = known(trace=trace, tokens=trace.get("tokens"), usd=trace.get("usd"))
        error = None if "value" in record else "the trajectory has no answer of the agent"
        outputs.append(ImportedOutput(index, record.get("value"), 0, error, metadata))
        if record.get("input") is None:
            notes.by_hand("a trajectory has no message of the user: its test case has no input", line)
    if not cases:
        raise InputError(Problem("holds no trajectory in ATIF v1", source.name))
    notes.came(test_case=len(cases), output=len(outputs))
    return Imported(ATIF, "1", source.path.stem, notes, cases, runs=[ImportedRun(outputs)])
