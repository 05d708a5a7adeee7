"""The reference pages of the site, generated from the code while MkDocs builds it.

MkDocs calls the functions that begin with `on_`. `python docs/reference.py` writes the table of docs/settings.md.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic_core import PydanticUndefined

import fepflow
from fepflow.api.rest.evalguard import evalguard_router, operations
from fepflow.api.rest.evaluations import evaluations_router
from fepflow.api.rest.fep import COMPONENTS, fep_router
from fepflow.api.rest.http import Errors, create_app
from fepflow.checks.base import BaseCheck
from fepflow.checks.docgen import summary_of
from fepflow.checks.schemas import complete_suite_schema
from fepflow.cli.main import fepflow as command_line
from fepflow.settings import Settings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BEGIN = "<!-- The table begins; `python docs/reference.py` writes it. -->\n"
END = "<!-- The table ends. -->\n"


def cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    plain = [part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts]
    return "".join(plain).replace("|", "\\|")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; a cell is Markdown already."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


# Suite keys


def suite_page() -> str:
    """Return the page of all keys of a suite, from its JSON Schema."""
    schema = complete_suite_schema()
    sections = {
        "Suite": schema,
        **{name: part for name, part in schema["$defs"].items() if not re.search(r"-\d", name)},
    }
    parts = [
        "# Suite keys",
        "",
        "Every key of a suite file, from the JSON Schema that `fepflow schema` prints and that editors use. "
        "[The suite file](../suite.md) explains how the keys work together. [Checks](../checks.md) lists the arguments "
        "of each check type.",
        "",
    ]
    for name, part in sections.items():
        required = part.get("required", ())
        rows = [
            (f"`{key}`", _type(value), _default(value, key in required), cell(_meaning(value, schema["$defs"])))
            for key, value in part.get("properties", {}).items()
        ]
        parts += [f"## {name}", "", part.get("description", "").strip(), ""]
        parts += [table(("key", "type", "default", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def _meaning(schema: dict[str, Any], sections: dict[str, Any]) -> str:
    """Return what a key means; of a section that says nothing, the first sentence of the section."""
    named = next((part["$ref"] for part in (schema, *schema.get("anyOf", ())) if "$ref" in part), "").rpartition("/")[2]
    return schema.get("description") or re.split(r"(?<=\.)\s", sections.get(named, {}).get("description", ""))[0]


def _default(schema: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    default = schema.get("default")
    return "" if default in (None, [], {}) else f"`{json.dumps(default, ensure_ascii=False)}`"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            kinds = dict.fromkeys(_type(part) for part in schema[word] if part.get("type") != "null")
            return " or ".join(kinds)
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    names = {"string": "text", "boolean": "true or false", "integer": "whole number", "object": "mapping"}
    return names.get(kind, kind)


# Commands


def commands_page() -> str:
    """Return the page of all commands with their options."""
    parts = ["# Commands", "", "Every command of `fepflow`, as `fepflow COMMAND --help` prints it.", ""]
    for path, command in _commands("fepflow", command_line):
        context = click.Context(command, info_name=path)
        parts += [f"{'#' * min(path.count(' ') + 1, 3)} {path}".replace("# fepflow", "## fepflow", 1)]
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        parts += ["", f"```text\n{usage}\n```", "", _paragraphs(command.help or ""), ""]
        rows = [
            (f"`{names}`", cell(meaning.replace("  ", " ")))
            for names, meaning in filter(None, (one.get_help_record(context) for one in command.get_params(context)))
            if "--help" not in names
        ]
        parts += [table(("option", "meaning"), rows)] if rows else []
    return "\n".join(parts)


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if path != "fepflow":
        yield path, command
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            if not inner.hidden and inner.name == name:  # not a second name of another
                yield from _commands(f"{path} {name}", inner)


def _paragraphs(text: str) -> str:
    return "\n\n".join(cell(part.replace("\b", "")).replace("\\|", "|") for part in dedent(text).split("\n\n"))


# Settings


def settings_table() -> str:
    """Return the table of all settings."""
    rows = [
        (f"`FEPFLOW_{name.upper()}`", _setting_default(name), cell(field.description or ""))
        for name, field in Settings.model_fields.items()
    ]
    return table(("variable", "default", "meaning"), rows)


def _setting_default(name: str) -> str:
    field = Settings.model_fields[name]
    if field.default is PydanticUndefined:
        return f"`{field.get_default(call_default_factory=True)}`".replace(str(Path.home()), "~")  # type: ignore[call-arg]
    if field.default in (None, ""):
        return "none"
    if isinstance(field.default, float):
        days, rest = divmod(field.default, 86_400)
        return f"`{days:g}d`" if not rest else f"`{field.default:g}s`"
    return f"`{field.default}`"


def with_settings(page: str) -> str:
    """Return the page of the settings with its table as the code has it."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{settings_table()}\n{END}{rest.partition(END)[2]}"


# Python


def python_page() -> str:
    """Return the page of all public names, from their signatures and docstrings."""
    values = {name: getattr(fepflow, name) for name in fepflow.__all__}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    checks = {name: value for name, value in values.items() if inspect.isclass(value) and issubclass(value, BaseCheck)}
    others = {name: value for name, value in values.items() if inspect.isclass(value) and name not in checks}
    parts = [
        "# Python",
        "",
        "Every public name of `fepflow`. [From Python](../python.md) shows how they are used, and "
        "[Evaluations as pytest tests](../pytest.md) has the plugin.",
        "",
        "## Functions",
        "",
    ]
    for name, value in functions.items():
        parts += [f"### {name}", "", f"```python\n{name}{_signature(value)}\n```", "", _docstring(value), ""]
    parts += ["## Classes", ""]
    for name, value in others.items():
        members = [
            (f"`{member}`", cell(_first(inner)))
            for member, inner in inspect.getmembers(value)
            if not member.startswith(("_", "model_")) and _is_ours(inner)
        ]
        parts += [f"### {name}", "", _docstring(value), ""]
        parts += [table(("member", "meaning"), members)] if members else []
    parts += ["## Checks", "", "[Checks](../checks.md) has their arguments, with examples.", ""]
    return "\n".join(
        [*parts, table(("class", "meaning"), [(f"`{n}`", cell(summary_of(v))) for n, v in checks.items()])]
    )


def _signature(function: Any) -> str:
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    if len(signature) < 80:
        return signature
    inner, _, returned = signature[1:].rpartition(") -> ")
    return "(\n    " + re.sub(r", (?=\**\w+(: |,|$)|\*,)", ",\n    ", inner) + f",\n) -> {returned}"


def _docstring(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    text = re.sub(r"^(Args|Returns|Raises):\n((?: {4}.*\n?)+)", _listed, text, flags=re.MULTILINE)
    return re.sub(r"(?<![`\w])<(?=\w)", r"\\<", text)


def _listed(section: re.Match[str]) -> str:
    items = re.sub(r"\n {4}(?=\S)", "\n- ", "\n" + section[2].rstrip())
    names = re.sub(r"\n- ([*\w]+):", r"\n- `\1`:", items)
    return f"\n**{section[1]}**\n{names}\n"


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0]


def _is_ours(value: Any) -> bool:
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return inspect.isfunction(function) and function.__module__.startswith("fepflow") and bool(function.__doc__)


# REST and gRPC


def rest_page() -> str:
    """Return the page of all operations, from the OpenAPI document."""
    nothing: Any = None  # no operation is called
    routers = [fep_router(nothing), evaluations_router(nothing, nothing), evalguard_router(nothing, nothing)]
    document = create_app(routers, Errors({}), operations(), COMPONENTS).openapi()
    parts = [
        "# REST",
        "",
        "Every operation of `fepflow serve`, from the OpenAPI document that it serves at `/openapi.json`. "
        "[REST and gRPC](../api.md), [Requesting evaluations](../evaluations-api.md) and [EvalGuard](../evalguard.md) "
        "show requests and answers.",
        "",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += [f"## {method.upper()} {path}", "", operation.get("description") or operation["summary"], ""]
            rows = [
                (f"`{one['name']}`", one["in"], cell(one.get("description", "")))
                for one in operation.get("parameters", ())
                if one["in"] != "path"  # the heading has it
            ]
            parts += [table(("parameter", "in", "meaning"), rows)] if rows else []
            parts += ["Statuses: " + ", ".join(f"`{status}`" for status in sorted(operation["responses"])) + ".", ""]
    return "\n".join(parts)


def grpc_page() -> str:
    """Return the page of the gRPC interface, which is its description."""
    proto = (ROOT / "fepflow/api/grpc/fep/v1/fep.proto").read_text(encoding="utf-8")
    rows = []
    for service, body in re.findall(r"^service (\w+) \{\n(.*?)^\}", proto, re.DOTALL | re.MULTILINE):
        for comment, name in re.findall(r"((?:  //.*\n)+)  rpc (\w+)", body):
            rows.append((f"`{service}`", f"`{name}`", cell(re.sub(r"//", "", comment))))
    return (
        "# gRPC\n\n[Over gRPC](../grpc.md) shows calls and their limits.\n\n"
        f"{table(('service', 'call', 'meaning'), rows)}\n## Messages\n\n```protobuf\n{proto}```\n"
    )


GENERATED = {
    "suite": suite_page,
    "commands": commands_page,
    "python": python_page,
    "rest": rest_page,
    "grpc": grpc_page,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, page in GENERATED.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page's text as Python-Markdown reads it; GitHub reads the file as it is."""
    del config, files
    here = (DOCS / page.file.src_uri).parent
    lines, fenced = [], False
    for line in markdown.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        indent = len(line) - len(line.lstrip(" "))
        if not fenced:
            item = re.match(r" *(-|\d+\.) ", line)
            if item and indent == 0 and lines and lines[-1].strip() and not re.match(r" *(-|\d+\.) |  ", lines[-1]):
                lines.append("")  # a list begins after an empty line
        if indent >= 2 and not fenced and not line.lstrip().startswith("```"):
            line = " " * indent + line  # what belongs to an item is indented by four
        lines.append(re.sub(r"\[([^\]]+)\]\((?:\.\./)[^)]*\)", lambda link: _inside(link, here), line))
    return "\n".join(lines)


def _inside(link: re.Match[str], here: Path) -> str:
    """Return a link as it is, or its text alone if it leads out of the documentation, to the repository."""
    target = (here / re.split(r"[(#)]", link[0].partition("](")[2])[0]).resolve()
    return link[0] if target.is_relative_to(DOCS) else link[1]


if __name__ == "__main__":
    file = DOCS / "settings.md"
    file.write_text(with_settings(file.read_text(encoding="utf-8")), encoding="utf-8")
