"""`fepflow calibrate` and `labels`: a judge beside people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fepflow.cli.options import JSON, SUITE_FILE, echo_json, suite_of_folder
from fepflow.text import listed, number, plural, printable

if TYPE_CHECKING:
    from fepflow.store.records import Calibration, RunRecord


MOST_COLUMNS = 12
"""Categories of a matrix that is printed; --json has all of them."""


@click.command()
@click.argument("suite", type=click.Path(path_type=Path), required=False)
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="People's labels: id,label (.csv, .jsonl, .json, .yaml); with --sample, the file to write. "
    "Default: labels in the store for --run.",
)
@click.option("--check", metavar="ID", help="Judge to compare, if the suite has several.")
@click.option("--field", metavar="NAME", help="Field of the judge's response to compare (default: passed).")
@click.option("--run", "run_id", metavar="RUN", help="Compare the verdicts of this run, instead of new ones.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Draw N outputs of the run at random, and write them to --labels for labelling.",
)
@click.option("--seed", type=click.IntRange(0, 2**62), metavar="N", help="Seed of the draw (default: random).")
@click.option("--min-kappa", type=click.FloatRange(-1, 1), metavar="X", help="Exit with 1 if kappa is below this.")
@JSON
def calibrate(
    suite: Path | None,
    labels: Path | None,
    check: str | None,
    field: str | None,
    run_id: str | None,
    sample: int | None,
    seed: int | None,
    min_kappa: float | None,
    as_json: bool,
) -> int:
    """Compare a judge of SUITE with people's labels.

    Runs the labelled cases as `fepflow run` does, or uses the verdicts of --run. The agreement is stored, and shown
    from then on beside this judge's verdicts. Scorers of an imported run are judges, too, and need no SUITE.
    """
    from fepflow.cli.console import Console
    from fepflow.services import judges

    if suite is None and run_id is not None and SUITE_FILE.is_file():
        suite = SUITE_FILE
    if sample is not None:
        return _draw(suite, labels, check, run_id, sample, seed)
    if seed is not None:
        raise click.UsageError("--seed is the seed of --sample: give --sample, too.")
    if run_id is None:
        if labels is None:
            raise click.UsageError("Give people's labels (--labels FILE), or the run that they labelled (--run RUN).")
        suite = suite or suite_of_folder()
        labelled = judges.labels_of_suite(suite, labels, check, field)
        run, code = _run(suite, frozenset(labelled.labels))
        if run.outcome is None:
            return code
    else:
        note = Console(to_stderr=True).note
        run, labelled = judges.labels_of_run(suite, run_id, labels, check, field, note)
    calibration = judges.calibrate(run, labelled)
    if as_json:
        from fepflow.analysis.judge_reliability import calibration_data

        echo_json(calibration_data(calibration))
    else:
        click.echo("\n".join(_report(calibration)))
    kappa = calibration.statistics["kappa"]["value"]
    return int(min_kappa is not None and (kappa is None or kappa < min_kappa))


def _draw(
    suite: Path | None, labels: Path | None, check: str | None, run_id: str | None, size: int, seed: int | None
) -> int:
    """Write outputs of a run that people are to label."""
    import secrets

    from fepflow.cli.console import Console
    from fepflow.services import judges

    if run_id is None:
        raise click.UsageError("--sample is of the outputs of a run: say which one (--run).")
    if labels is None:
        raise click.UsageError("--sample writes the outputs to a file, to be labelled: name it (--labels).")
    seed = secrets.randbelow(2**31) if seed is None else seed
    run, drawn = judges.draw_for_labels(suite, run_id, labels, check, size, seed, Console(to_stderr=True).note)
    count = len(drawn.case_ids)
    click.echo(
        f"{labels}: {count} {'output' if count == 1 else 'outputs'} of run {run.id[:8]}, drawn at random (seed "
        f"{drawn.seed}) from those that the judge passed and from those that it failed. Fill in each label, yes or no; "
        "then:"
    )
    suite_argument = "" if suite is None or run.suite_path is None else f"{suite} "
    click.echo(f"  fepflow calibrate {suite_argument}--run {run.id[:8]} --labels {labels}")
    return 0


def _run(suite: Path, cases: frozenset[str]) -> tuple[RunRecord, int]:
    """Run some cases, and return the run and its exit code; a run without an outcome has not come to its end."""
    from fepflow.analysis.calibration import CALIBRATION_TAG
    from fepflow.cli.console import Console
    from fepflow.services import run_service
    from fepflow.tasks.create_run import RunOptions

    console = Console(to_stderr=True)
    options = RunOptions(cases=cases, repeats=1, tags=(CALIBRATION_TAG,))
    with run_service.start(suite, options, console.note) as begun, console.progress_of(begun.run) as listener:
        finished = run_service.execute(begun, listener)
    if finished.run.outcome is None:
        short = finished.run.id[:8]
        console.note(f"nothing was compared: `fepflow run --resume {short}`, then calibrate with --run {short}")
    return finished.run, finished.exit_code


def _report(calibration: Calibration) -> Iterator[str]:
    from fepflow.analysis.judge_reliability import warnings_of, youden_of

    statistics = calibration.statistics
    yield f"judge {printable(calibration.check_id)} ({printable(calibration.model)}), {printable(calibration.field)}"
    missing = f", {calibration.missing} more without a verdict" if calibration.missing else ""
    yield f"{calibration.n} labels{missing}; run {calibration.run_id[:8]}"
    yield from _design(calibration)
    yield from _people(statistics.get("people") or {})
    yield ""
    kind = " (quadratic weights)" if statistics["kappa"]["weights"] == "quadratic" else ""
    yield _line("kappa", statistics["kappa"], kind)
    yield _line("agreement", statistics["agreement"])
    for name, label in (("tpr", "pass"), ("tnr", "fail")):
        if name in statistics:
            yield _line(name.upper(), statistics[name], f" (of {statistics[name]['n']} that people {label})")
    if youden := youden_of(calibration):
        yield _line("J", youden, " (TPR + TNR - 1)")
    yield from _matrix(statistics)
    yield from (f"! {warning}" for warning in warnings_of(calibration))


def _design(calibration: Calibration) -> Iterator[str]:
    """Yield how the labelled outputs were chosen, and what the labels correct."""
    from fepflow.analysis.judge_reliability import CHOSEN, FIELD, design_of

    if calibration.field != FIELD:
        return
    draw, others, design = (
        calibration.statistics.get("draw"),
        calibration.statistics.get("others"),
        design_of(calibration),
    )
    seed = f" (seed {draw['seed']})" if draw else ""
    yield f"{CHOSEN[design]}{seed}"
    if others:
        yield f"{plural(others, 'more label')} that the draw did not ask for: not in the figures"


def _people(people: dict[str, Any]) -> Iterator[str]:
    if people:
        yield f"labels of {people['count']} {'person' if people['count'] == 1 else 'people'} in the store"
    for pair in people.get("pairs", ()):
        names = listed([printable(name) for name in pair["people"]])
        kappa = _line("kappa", pair["kappa"]).split(maxsplit=1)[1]
        yield f"  {names} say the same of {pair['agreed']} of {plural(pair['n'], 'output')}: kappa {kappa}"
    alpha = people.get("alpha", {})
    if alpha.get("value") is not None:
        yield f"  all together, on {plural(alpha['n'], 'output')} that several labelled: alpha {number(alpha['value'])}"


def _line(name: str, figure: dict[str, Any], more: str = "") -> str:
    if figure["value"] is None:
        return f"  {name:<10} none{more}"
    interval = f"95 % interval {number(figure['low'])} to {number(figure['high'])}"
    return f"  {name:<10} {number(figure['value']):<7} {interval}{more}"


def _matrix(statistics: dict[str, Any]) -> Iterator[str]:
    words = {True: "pass", False: "fail"}
    names = [
        words[item] if isinstance(item, bool) else f"{item:g}" if isinstance(item, float) else printable(item)
        for item in statistics["categories"]
    ]
    yield ""
    if len(names) > MOST_COLUMNS:
        yield f"  {len(names)} different values: --json has the matrix"
    else:
        corner = "people / judge"
        first, width = max(len(corner), *map(len, names)), max(6, *map(len, names))
        yield f"  {corner:<{first}}  " + "  ".join(f"{name:>{width}}" for name in names)
        for name, row in zip(names, statistics["matrix"], strict=True):
            yield f"  {name:<{first}}  " + "  ".join(f"{count:>{width}}" for count in row)
    yield ""


@click.group()
def labels() -> None:
    """Manage people's labels of outputs, with which `fepflow calibrate` compares judges."""


@labels.command()
@click.argument("run_id", metavar="RUN")
@click.option("--check", metavar="ID", help="Labels for this judge only.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write, .csv or .jsonl; it must not exist yet.",
)
def export(run_id: str, check: str | None, output: Path) -> None:
    """Write the labels of RUN (an id, its beginning, or latest) to a file that `calibrate --labels` reads.

    The file has a row for each output and field: the label that counts, and each person's label, time and note.
    """
    from fepflow.services.judges import export_labels

    run, count = export_labels(run_id, check, output)
    click.echo(f"{output}: labels of run {run.id[:8]}, {plural(count, 'row')}.")
