"""The data of server-sent events, however the stream is cut into pieces."""

from __future__ import annotations

import pytest

from fepflow.calls.responses import EventParser

STREAMS = {
    "data: a\n\n": ["a"],
    "data:a\r\n\r\ndata:  b\r\r": ["a", " b"],
    "data: a\ndata\ndata: b\n\n": ["a\n\nb"],
    ": c\n\nid: 1\n\nevent: x\nretry: 5\ndata: a\n\n": ["a"],
    "data: a\u2028b\x85\x0b\x0c\x1c\n\n": ["a\u2028b\x85\x0b\x0c\x1c"],
    "\ufeffdata: a\n\ndata: b": ["a", "b"],
    "database: a\nother: b\n\n": [],
    "": [],
}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("text", STREAMS, ids=ascii)
def test_events_are_the_same_however_the_stream_is_cut(text: str, size: int) -> None:
    parser, raw = EventParser(), text.encode()
    found = [data for start in range(0, len(raw), size) for data in parser.feed(raw[start : start + size])]
    assert [*found, *parser.finish()] == STREAMS[text]
