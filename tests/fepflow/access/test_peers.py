from __future__ import annotations

from concurrent import futures
from pathlib import Path

import grpc
import pytest

from fepflow.api.grpc.calls import address_of_peer


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:50051", "127.0.0.1"),
        ("ipv4:192.0.2.1:1", "192.0.2.1"),
        ("ipv6:%5B::1%5D:50051", "::1"),
        ("ipv6:[2001:db8::1]:50051", "2001:db8::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", "fe80::1"),
        ("unix:/run/fepflow.sock", None),
        ("unix-abstract:x", None),
        ("ipv4:", "ipv4:"),
        ("127.0.0.1", "127.0.0.1"),
        ("vsock:1:2", "vsock:1:2"),
        ("", ""),
    ],
)
def test_forms(peer: str, address: str | None) -> None:
    assert address_of_peer(peer) == address


@pytest.mark.parametrize(("target", "address"), [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("unix:s", None)])
def test_peers_of_a_real_server(
    target: str, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    peers = []

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        peers.append(context.peer())
        return b""

    handler = grpc.method_handlers_generic_handler("x.Y", {"Z": grpc.unary_unary_rpc_method_handler(answer)})
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[handler])
    try:
        port = server.add_insecure_port(target)
    except RuntimeError:
        pytest.skip("this machine has no such address")
    server.start()
    with grpc.insecure_channel(target.replace(":0", f":{port}")) as channel:
        channel.unary_unary("/x.Y/Z", None, None)(b"", timeout=20)
    server.stop(None).wait()
    assert [address_of_peer(peer) for peer in peers] == [address]
