"""Logs in the formats of inspect_ai, written by hand."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import zstandard

METHODS = {"stored": 0, "deflated": 8, "zstandard": 93}


def header(ids: Sequence[Any] = (), epochs: int = 1, **fields: Any) -> dict[str, Any]:
    about = {
        "task": "capitals",
        "model": "openai/gpt-5",
        "created": "2026-01-02T03:04:05+00:00",
        "dataset": {"sample_ids": list(ids)},
        "config": {"epochs": epochs},
    }
    return {"version": 2, "status": "success", "eval": about, **fields}


def sample(sample_id: Any = "a", epoch: int = 1, answer: str = "Paris", **fields: Any) -> dict[str, Any]:
    output = {"completion": answer, "choices": [{"message": {"content": answer}, "stop_reason": "stop"}]}
    return {
        "id": sample_id,
        "epoch": epoch,
        "input": f"question {sample_id}",
        "target": "Paris",
        "output": output,
        "scores": {"match": {"value": "C"}},
        "messages": [],
        "model_usage": {},
        **fields,
    }


def write_eval(path: Path, head: dict[str, Any], samples: Iterable[dict[str, Any]], method: str = "zstandard") -> Path:
    """Write a log as a zip, whose members are packed by `method`."""
    named = [("header.json", json.dumps(head).encode())]
    named += [(f"samples/{each['id']}_epoch_{each['epoch']}.json", json.dumps(each).encode()) for each in samples]
    return write_zip(path, named, method)


def write_zip(path: Path, members: Sequence[tuple[str, bytes]], method: str) -> Path:
    with path.open("wb") as file:
        directory = b""
        for name, data in members:
            packed = _packed(data, method)
            sizes = struct.pack("<LLL", zlib.crc32(data), len(packed), len(data))
            names = struct.pack("<HH", len(name), 0)
            local = struct.pack("<4sHHHHH", b"PK\x03\x04", 20, 0, METHODS[method], 0, 0) + sizes + names + name.encode()
            offset = file.tell()
            directory += struct.pack("<4sHHHHHH", b"PK\x01\x02", 20, 20, 0, METHODS[method], 0, 0) + sizes + names
            directory += struct.pack("<HHHLL", 0, 0, 0, 0, offset) + name.encode()
            file.write(local + packed)
        start = file.tell()
        file.write(directory)
        count = len(members)
        file.write(struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, count, count, len(directory), start, 0))
    return path


def _packed(data: bytes, method: str) -> bytes:
    if method == "zstandard":
        return zstandard.ZstdCompressor().compress(data)
    if method == "deflated":
        deflate = zlib.compressobj(wbits=-15)
        return deflate.compress(data) + deflate.flush()
    return data
