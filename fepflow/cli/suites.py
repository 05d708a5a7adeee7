"""`fepflow init`, `validate`, `plan`, `checks`, `schema` and `cases`: what a suite is made of, before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fepflow.cli.options import JSON, SUITE, Margin, echo_json, margin_option, margins_by_metric
from fepflow.errors import InfrastructureError, InputError, UserError
from fepflow.text import known_names, plural, printable

if TYPE_CHECKING:
    from fepflow.analysis.planning import PairedPlan, Plan
    from fepflow.checks.docgen import Argument
    from fepflow.errors import Problem


STARTER = {"suite.yaml": "suite.yaml", "cases.jsonl": "cases.jsonl", "agent.py": "agent.py"}
STARTER_OF_MODEL = {"suite.yaml": "openai.yaml", "cases.jsonl": "cases.jsonl", "prompt.md": "prompt.md"}
"""The files that are written, and those of ours that they are copies of."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--openai", "for_model", is_flag=True, help="Write a suite for a model, with a prompt in a file.")
@click.option(
    "--mcp", "server", metavar="COMMAND|URL", help="Write a suite for an MCP server, with a case for each tool."
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME",
    help="With --mcp: an environment variable to pass to the server.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="With --mcp: a request header; write secrets as ${NAME}.",
)
def init(folder: Path, for_model: bool, server: str | None, variables: Sequence[str], headers: Sequence[str]) -> None:
    """Write a commented suite, some test cases and a small agent to FOLDER (default: here). The suite passes.

    With --openai, a model and its prompt replace the agent. With --mcp, only a suite is written, with a test case for
    each tool that the server lists. Cases of tools that say that they destroy something are comments.
    """
    if for_model and server is not None:
        raise click.UsageError("give --openai or --mcp, not both")
    files_of_ours = STARTER_OF_MODEL if for_model else STARTER
    _refuse_existing(folder, list(files_of_ours) if server is None else ["suite.yaml"])
    if server is not None:
        _init_for_mcp(folder, server, variables, headers)
        return
    if variables or headers:
        raise click.UsageError("--env and --header go with --mcp.")
    from importlib.resources import files

    starter = files("fepflow.cli").joinpath("starter")
    texts = {name: starter.joinpath(ours).read_text(encoding="utf-8") for name, ours in files_of_ours.items()}
    _write_files(folder, texts)
    if for_model:
        click.echo(f"Next: export OPENAI_API_KEY, or set model and base_url; then fepflow run {folder / 'suite.yaml'}.")
    else:
        click.echo(f"Next: fepflow run {folder / 'suite.yaml'}, which passes; then put your own agent into agent.py.")


def _refuse_existing(folder: Path, names: Sequence[str]) -> None:
    taken = [name for name in names if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder / taken[0]} already exists: choose another folder, or remove it")


def _write_files(folder: Path, texts: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    click.echo(f"Wrote {', '.join(str(folder / name) for name in texts)}.")


def _init_for_mcp(folder: Path, server: str, variables: Sequence[str], headers: Sequence[str]) -> None:
    import asyncio

    from fepflow.extras import require

    require("mcp", "a suite for an MCP server", "mcp")
    from fepflow.calls.mcp.starter import starter_suite, target_of

    target, written = target_of(server, variables, headers)
    suite = asyncio.run(starter_suite(target, written, folder))
    _write_files(folder, {"suite.yaml": suite.text})
    click.echo(f"Test cases of the tools: {printable(known_names(suite.called))}.")
    for tools, what in (
        (suite.may_change, "A run calls these too, which do not say that they only read"),
        (suite.left_out, "Left as comments, for these say that they destroy something"),
    ):
        if tools:
            click.echo(f"{what}: {printable(', '.join(tools))}.")
    click.echo(f"Next: put real values where TODO stands, then fepflow run {folder / 'suite.yaml'}.")


MOST_PROBLEMS = 1_000
"""Lines that a person may still read."""


@click.command()
@SUITE
def validate(suite: Path) -> None:
    """Find every mistake in a suite and in the files that it names. Neither the target nor a model is called."""
    from fepflow.datasets.addresses import of_origin
    from fepflow.services import run_service

    validation = run_service.validate(suite)
    print_problems(validation.problems)
    if validation.errors:
        count = len(validation.errors)
        click.echo(f"{suite}: {plural(count, 'error')}.", err=True)
        error = InfrastructureError if validation.is_only_unreachable else InputError
        raise click.exceptions.Exit(error.exit_code)
    if validation.unreachable:
        click.echo(f"{suite}: no error was found, but what could not be looked up was not validated.")
        return
    checks = plural(len(validation.require().checks), "shared check")
    if own := sum(len(case.checks or ()) for case in validation.cases.with_checks()):
        checks = f"{checks}, {own:,} of single test cases"
    variants = f"{plural(len(validation.variants), 'variant')}, " if validation.variants else ""
    click.echo(f"{suite} is valid: {variants}{plural(len(validation.cases), 'test case')}, {checks}.")
    if validation.origin is not None:
        click.echo(f"Test cases from {of_origin(validation.origin.data())}.")
    from fepflow.extras import is_installed

    if not is_installed("run"):
        click.echo('To run it here: pip install "fepflow[run]"', err=True)


def print_problems(problems: Sequence[Problem]) -> None:
    """Print the first problems on stderr, and how many more there are."""
    for problem in problems[:MOST_PROBLEMS]:
        click.echo(f"{problem.severity}: {problem}", err=True)
    if (left := len(problems) - MOST_PROBLEMS) > 0:
        click.echo(f"... and {left:,} more", err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of suite files, for editors."""
    from fepflow.checks.schemas import complete_suite_schema

    echo_json(complete_suite_schema())


SHARE = click.FloatRange(0, 1)


@click.command()
@SUITE
@click.option("--min", "minimum", type=SHARE, metavar="X", help="Minimum to show (default: the gate's).")
@click.option("--expect", "expected", type=SHARE, metavar="X", help="Share of answers that you expect to pass.")
@click.option(
    "--against",
    metavar="BASE",
    help="Plan to show that a new version is not worse than BASE: a baseline's name, previous, or a run.",
)
@margin_option("With --against: how much worse is still accepted (default: the gate's); repeatable.")
@click.option(
    "--discordant",
    type=SHARE,
    metavar="X",
    help="With --against: share of cases that differ between two runs (default: as in earlier runs).",
)
@click.option(
    "--power",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    metavar="X",
    help="Chance of a pass that you want.",
)
@click.option(
    "--repeats", type=click.IntRange(1, 1_000), metavar="N", help="Repeats of each case (default: the suite's)."
)
@JSON
def plan(
    suite: Path,
    minimum: float | None,
    expected: float | None,
    against: str | None,
    margins: tuple[Margin, ...],
    discordant: float | None,
    power: float,
    repeats: int | None,
    as_json: bool,
) -> None:
    """Estimate how many test cases SUITE needs for a pass, if the agent is as good as you expect. No call is made.

    A pass shows that a minimum is reached (--min, with --expect), or that a new version is not worse than another run
    (--against).
    """
    plans: Sequence[Plan | PairedPlan]
    if against is None:
        if expected is None or margins or discordant is not None:
            raise click.UsageError("Give --expect, the share of answers that you expect to pass; or --against BASE.")
        from fepflow.services import run_service

        plans = run_service.plan(suite, minimum, expected, power, repeats)
    else:
        if not (minimum is None and expected is None and repeats is None):
            raise click.UsageError("--against takes --margin, --discordant and --power; repeats are those of BASE.")
        from fepflow.services import comparisons

        plain, by_metric = margins_by_metric(margins)
        plans = comparisons.plan_against(suite, against, plain, by_metric, power, discordant)
    if as_json:
        echo_json([planned.data() for planned in plans])
    else:
        click.echo("\n".join(line for planned in plans for line in planned.sentences()))


@click.command()
@click.argument("check_type", metavar="[TYPE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON Schema, of all types or of TYPE.")
def checks(check_type: str | None, as_json: bool) -> None:
    """List the check types with their versions, or describe TYPE."""
    from fepflow.checks.base import MODIFIERS, modifier_names
    from fepflow.checks.docgen import arguments_of, purpose_of, summary_of
    from fepflow.checks.registry import find_check, list_checks, list_versions
    from fepflow.checks.schemas import check_schema

    if as_json:
        schemas = check_schema(check_type) if check_type else {name: check_schema(name) for name in list_checks()}
        echo_json(schemas)
    elif check_type:
        check_class = find_check(check_type)
        click.echo(f"{check_type} ({', '.join(list_versions(check_type))})\n\n{purpose_of(check_class)}\n")
        for argument in arguments_of(check_type):
            click.echo(_argument_line(argument))
        others = ", ".join(name for name in MODIFIERS if name in modifier_names(check_class))
        click.echo(f"\nEvery check also takes {others}.")
    else:
        width = max(map(len, list_checks()))
        for name in list_checks():
            versions = ", ".join(list_versions(name))
            click.echo(f"{name:<{width}}  {versions:<7}  {summary_of(find_check(name))}".rstrip())


def _argument_line(argument: Argument) -> str:
    default = "required" if argument.default is None else f"default {argument.default}"
    return f"  {argument.name} ({argument.kind}; {default})\n      {argument.description}".rstrip()


@click.group()
def cases() -> None:
    """Turn cases of runs into test cases."""


@cases.command()
@click.argument("run")
@click.option("--failed", is_flag=True, help="Only cases that did not pass.")
@click.option("--check", "check_id", metavar="ID", help="Only cases that did not pass this check.")
@click.option("--case", "case_ids", metavar="ID", multiple=True, help="Only this case. Repeatable.")
@click.option("--tag", "tags", multiple=True, help="Add a tag to the metadata of the new cases. Repeatable.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    help="JSON lines file to which cases are appended.",
)
def add(
    run: str, failed: bool, check_id: str | None, case_ids: tuple[str, ...], tags: tuple[str, ...], file: Path
) -> None:
    """Append test cases of RUN to a file, except those that the file already has.

    RUN is an id, its beginning, or latest. `metadata.origin` of each new case names its run and case.
    """
    from fepflow.services import run_service
    from fepflow.services.failed_results import Selection, add_cases

    failures = failed or check_id is not None
    selections = [Selection(failures, case_id, check_id) for case_id in case_ids or (None,)]
    with run_service.open_store() as store:
        record = store.runs.get(run)
        added = add_cases(store, record, selections, file, tags)
    were = "was" if added.present == 1 else "were"
    present = f", {added.present:,} {were} there already" if added.present else ""
    click.echo(f"{file}: {plural(len(added.ids), 'test case')} added{present}.")
    if added.renamed:
        click.echo(f"Their ids are taken by other cases, so they are called {', '.join(added.renamed[:10])}.", err=True)
    if added.unexpected:
        click.echo(f"{plural(added.unexpected, 'new case')} without an expected value: add what is right.", err=True)
