"""The protocol's description: what the specification has, by its names and numbers; the code made of it is current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from fepflow.api.grpc.fep.v1 import fep_pb2

ROOT = Path(__file__).parents[4]
PROTO = "fepflow/api/grpc/fep/v1/fep.proto"
FIRST_ADDITION = 100
ADDED_MESSAGES = {"ErrorStatus"}
ADDED_RPCS = {"BatchEvaluation"}


def protoc(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    outs = [out.replace("=.", f"={tmp_path}") for out in re.findall(r"--\w+_out=\.", makefile)]
    assert len(outs) == 3
    protoc("-I.", *outs, PROTO, cwd=ROOT)
    for suffix in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py"):
        path = PROTO.removesuffix(".proto") + suffix
        assert (ROOT / path).read_text(encoding="utf-8") == (tmp_path / path).read_text(encoding="utf-8"), "make proto"


@pytest.fixture(scope="module")
def specified(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorProto:
    """What the text of the specification describes."""
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder")
    text = (Path(folder) / "spec" / "fep.md").read_text(encoding="utf-8")
    made = tmp_path_factory.mktemp("spec")
    (made / "fep.proto").write_text(re.findall(r"```\n(syntax = \"proto3\";.*?)```", text, re.DOTALL)[0])
    protoc("-I.", "--descriptor_set_out=fep.bin", "fep.proto", cwd=made)
    return FileDescriptorSet.FromString((made / "fep.bin").read_bytes()).file[0]


@pytest.fixture(scope="module")
def ours() -> FileDescriptorProto:
    found = FileDescriptorProto()
    fep_pb2.DESCRIPTOR.CopyToProto(found)
    return found


def field_key(field: FieldDescriptorProto) -> tuple[object, ...]:
    return field.name, field.number, field.type, field.type_name, field.label, field.proto3_optional


def test_every_message_has_the_fields_of_the_specification(
    specified: FileDescriptorProto, ours: FileDescriptorProto
) -> None:
    messages = {message.name: message for message in ours.message_type}
    assert set(messages) - {message.name for message in specified.message_type} == ADDED_MESSAGES
    for wanted in specified.message_type:
        fields = {field_key(field) for field in messages[wanted.name].field}
        missing = {field_key(field) for field in wanted.field} - fields
        assert not missing, wanted.name
        known = {field.number for field in wanted.field}
        added = {field.number for field in messages[wanted.name].field} - known
        assert all(number >= FIRST_ADDITION for number in added), wanted.name


def test_enums_and_package_are_those_of_the_specification(
    specified: FileDescriptorProto, ours: FileDescriptorProto
) -> None:
    assert ours.package == specified.package
    assert list(ours.enum_type) == list(specified.enum_type)


def test_every_rpc_of_the_specification_is_there(specified: FileDescriptorProto, ours: FileDescriptorProto) -> None:
    rpcs = [
        {(service.name, str(rpc)) for service in file.service for rpc in service.method} for file in (specified, ours)
    ]
    assert rpcs[0] <= rpcs[1]
    assert {re.findall(r'name: "(\w+)"', text)[0] for _, text in rpcs[1] - rpcs[0]} == ADDED_RPCS
