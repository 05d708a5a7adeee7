"""Harbor: the trials of a job (`result.json` in each trial's folder), and trajectories in ATIF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    CaseList,
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    ScorerValues,
    finite_number,
    known,
    listed,
    mapping,
    milliseconds,
    missing_cases,
    moment,
)
from fepflow.imports.source import Source
from fepflow.json.values import with_named_floats
from fepflow.text import brief, plural
from fepflow.traces.recorded import atif_records

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
    versions = (mapping(data).get("schema_version", "") for data in (source.data, source.first_record))
    return any(str(version).startswith("ATIF-") for version in versions)


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
    """Read each trial as an output of its task, and each reward as a check; each agent and model gets its own run."""
    reader = _Reader(source)
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
            what = f"the result of a trial cannot be read, and is left out: {brief(str(error), 200)}"
            reader.notes.by_hand(what, file=name)
            continue
        if _is_trial(data):
            reader.add(data, path)
        elif _is_job(data):
            job = data
    for trial in listed(job.get("trial_results")) if not reader.trials else ():
        if _is_trial(trial):
            reader.add(trial, None)
    if not reader.trials:
        raise InputError(Problem("holds no result of a trial", source.name, advice="name the job's folder"))
    expected = job.get("n_total_trials")
    return reader.imported(expected if isinstance(expected, int) else 0)


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self.notes = Notes(source.name)
        self._cases = CaseList()
        self._checksums: dict[str, str] = {}
        self._runs: dict[tuple[str, str], tuple[ImportedRun, ScorerValues]] = {}
        self.trials = 0

    def add(self, trial: dict[str, Any], path: Path | None) -> None:
        """Add a trial. Its trajectory stands beside its result, if the agent wrote one."""
        if trial.get("schema_version", _VERSION) != _VERSION:
            version = brief(str(trial["schema_version"]), 40)
            message = f"is a result of Harbor in version {version}; {_VERSION} can be read"
            raise InputError(Problem(message, self._source.name if path is None else str(path), path="schema_version"))
        self.trials += 1
        record = self._trajectory(path)
        index = self._case(trial, record)
        agent = mapping(trial.get("agent_info"))
        model = mapping(agent.get("model_info")).get("name")
        about = (str(agent.get("name") or "agent"), str(model or ""))
        run, values = self._runs.setdefault(about, (ImportedRun(), ScorerValues(self.notes)))
        repeat = run.next_repeat(index)
        run.times += [moment(trial.get("started_at")), moment(trial.get("finished_at"))]
        error, value = _error(trial), record.get("value")
        scores = {name: values.read(name, reward) for name, reward in _rewards(trial).items()}
        if error is None and not scores:
            error = "the trial ended without a reward"
        if error is not None:
            if scores:
                advice = "Harbor counts some exceptions, such as an agent's timeout, by the reward: compare its result"
                what = "a trial that ended in an exception has a reward: it is an error here"
                self.notes.by_hand(what, advice=advice)
            value, scores = None, {}
        run.outputs.append(ImportedOutput(index, value, repeat, error, _metadata(trial, record, model), scores))

    def _trajectory(self, path: Path | None) -> dict[str, Any]:
        beside = path.parent / _TRAJECTORY if path is not None else None
        if beside is None or not beside.is_file() or beside.is_symlink():
            return {}
        name = f"{beside.parent.parent.name}/{_TRAJECTORY}"
        try:
            return next((record for _, record in _atif(Source(beside, name), self.notes)), {})
        except InputError as error:
            what = f"a trajectory cannot be read, and is left out: {brief(str(error), 200)}"
            self.notes.by_hand(what, file=name)
            return {}

    def _case(self, trial: dict[str, Any], record: dict[str, Any]) -> int:
        name, checksum = str(trial["task_name"]), str(trial.get("task_checksum") or "")
        about = known(source=trial.get("source")) or None
        index = self._cases.place(name, {"id": name, "input": name, **known(metadata=about)})
        if "input" in record and self._cases[index]["input"] == name:
            self._cases[index]["input"] = record["input"]
        if checksum != self._checksums.setdefault(name, checksum):
            self.notes.by_hand(f"trials of the task {name} have different versions of it: they are one test case here")
        return index

    def imported(self, expected: int = 0) -> Imported:
        """Return the tasks as a suite, with a run of each agent and model. `expected` is the job's number of trials."""
        if expected > self.trials:
            what = f"{self.trials:,} of the job's {plural(expected, 'trial')} have a result: the others are missing"
            self.notes.by_hand(what)
            repeats_of_all = sum(run.repeats for run, _ in self._runs.values())
            self._cases += missing_cases(-(-expected // repeats_of_all) - len(self._cases))
        for (agent, model), (run, values) in self._runs.items():
            # Harbor counts a task as solved by its only reward, if that is 0 or 1.
            yes_or_no = values.names if len(values.names) == 1 else ()
            run.checks = values.settle(run.outputs, "the trial has no reward of this name", yes_or_no)
            run.variant = known(agent=agent, model=model or None) if len(self._runs) > 1 else None
        runs = [run for run, _ in self._runs.values()]
        rewards = {name for run in runs for name in run.checks}
        self.notes.came(test_case=len(self._cases), output=self.trials, reward=len(rewards))
        name = (self._source.path if self._source.is_folder else self._source.path.parent).resolve().name
        return Imported("harbor", str(_VERSION), name or "harbor", self.notes, self._cases, runs=runs)


def _error(trial: dict[str, Any]) -> str | None:
    """Return the first exception of a trial or of one of its steps, without its traceback."""
    for part in (trial, *map(mapping, listed(trial.get("step_results")))):
        info = part.get("exception_info")
        if isinstance(info, dict):
            return f"{info.get('exception_type', 'Exception')}: {info.get('exception_message', '')}"
        if info is not None:
            return str(info)
    return None


def _rewards(trial: dict[str, Any]) -> dict[str, Any]:
    result = mapping(trial.get("verifier_result"))
    rewards = result.get("rewards", result.get("reward"))
    if isinstance(rewards, dict):
        return {str(name): value for name, value in rewards.items()}
    return known(reward=rewards)


def _metadata(trial: dict[str, Any], record: dict[str, Any], model: Any) -> dict[str, Any]:
    agent = mapping(trial.get("agent_result"))
    tokens = [finite_number(agent.get(name)) for name in ("n_input_tokens", "n_output_tokens")]
    timing = mapping(trial.get("agent_execution"))
    began, ended = moment(timing.get("started_at")), moment(timing.get("finished_at"))
    metadata: dict[str, Any] = with_named_floats(
        known(
            trial=trial["trial_name"],
            model=model,
            latency_ms=milliseconds((ended - began).total_seconds()) if began and ended else None,
            tokens=None if None in tokens else sum(filter(None, tokens)),
            usd=finite_number(agent.get("cost_usd")),
            trace=record.get("trace"),
        )
    )
    return metadata


def _atif(source: Source, notes: Notes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the trajectories of a file as records, see `fepflow.traces.recorded`."""
    documents = source.records()
    if source.is_document:
        data = source.data
        documents = enumerate(data, 1) if isinstance(data, list) else iter([(1, data)])

    def complain(what: str, line: int) -> None:
        notes.by_hand(f"{what}; it is left out", line, file=source.name)

    yield from atif_records(documents, complain)


def read_atif(source: Source) -> Imported:
    """Read each trajectory as a test case with its output: nothing has judged them yet."""
    notes = Notes(source.name)
    cases: list[dict[str, Any]] = []
    outputs = []
    for line, record in _atif(source, notes):
        case = {"id": str(record["id"])} if record.get("id") else {}
        cases.append(with_named_floats({**case, "input": record.get("input")}))
        trace = with_named_floats(record["trace"])
        metadata = known(trace=trace, tokens=trace.get("tokens"), usd=trace.get("usd"))
        error = None if "value" in record else "the trajectory has no answer of the agent"
        outputs.append(ImportedOutput(len(cases) - 1, record.get("value"), 0, error, metadata))
        if record.get("input") is None:
            notes.by_hand("a trajectory has no message of the user: its test case has no input", line)
    if not cases:
        raise InputError(Problem("holds no trajectory in ATIF v1", source.name))
    notes.came(test_case=len(cases), output=len(outputs))
    return Imported("atif", "1", source.path.stem, notes, cases, runs=[ImportedRun(outputs)])
