"""Agents built with the SDK, over each of its transports."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import grpc
import pytest
import trustme
from aiohttp import web
from google.protobuf.json_format import MessageToJson

from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.base import TargetResponse, Turn, traceparent
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.conversations import ConversationTarget
from fepflow.calls.factory import open_target as open_any
from fepflow.errors import InputError, TargetError
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target
from tests.fepflow.calls.a2a.agents import BINDINGS, Scripted, card_of, grpc_server


async def answer(target, text) -> TargetResponse:
    return await target.call(target.render(TestCase(id="c", input=text)))


async def failure(target, text) -> TargetError:
    with pytest.raises(TargetError) as raised:
        await answer(target, text)
    return raised.value


def conversation_of(*turns: str) -> TestCase:
    return TestCase.model_validate({"id": "c", "turns": list(turns)})


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_task_is_followed_to_its_end_over_each_transport(agent, open_target, binding, streaming) -> None:
    _, card = await agent(binding, streaming=streaming)
    target = open_target(card)

    response = await answer(target, "work")

    assert response.value == "Paid back."
    metadata = response.metadata
    assert metadata["state"] == "completed"
    assert metadata["task_id"]
    assert metadata["context_id"]
    assert metadata["agent"] == {"name": "Scripted", "version": "2.1"}
    status = "working" if streaming else None  # a history does not tell it
    assert metadata["steps"] == [{"status": status, "public_output": "Looking it up."}]
    assert (await answer(target, "say Hello.")).value == "Hello."


@pytest.mark.parametrize("binding", BINDINGS)
async def test_agents_of_protocol_0_3_are_understood(agent, open_target, binding) -> None:
    _, card = await agent(binding, version="0.3")
    assert (await answer(open_target(card), "work")).value == "Paid back."
    assert (await answer(open_target(card, stream=False), "words")).value == "First.\nSecond."


async def test_an_output_is_text_data_or_references_of_files(agent, open_target) -> None:
    _, card = await agent()
    target = open_target(card)

    data = (await answer(target, "data")).value
    assert json.dumps(data, sort_keys=True) == '{"paid": true, "total": 42}', "whole numbers stay whole"
    assert (await answer(target, "words")).value == "First.\nSecond."
    mixed = await answer(target, "mixed")
    assert mixed.value == "The bill."
    file = {"file": {"name": "bill.pdf", "media_type": "application/pdf", "bytes": 8}}
    logo = {"file": {"media_type": "image/png", "url": "https://example.com/logo.png"}}
    assert mixed.metadata["parts"] == ["The bill.", {"total": 42}, file, logo]
    assert [(artifact["name"], artifact["value"]) for artifact in mixed.metadata["artifacts"]] == [
        ("bill", "The bill."),
        ("", logo),
    ]
    usage = (await answer(target, "usage")).metadata
    assert (usage["tokens"], usage["usd"]) == (120, 0.25)


async def test_a_task_that_asks_for_input_ends_its_turn(agent, open_target) -> None:
    executor, card = await agent()
    response = await answer(open_target(card), "refund")
    assert (response.value, response.metadata["state"]) == ("Which order?", "input-required")
    assert executor.cancelled == []


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_conversation_keeps_its_context_and_the_task_that_waits(agent, open_target, binding) -> None:
    executor, card = await agent(binding)
    target = open_target(card)

    async with target.converse(conversation_of("refund", "order A100", "say Bye.")) as conversation:
        answers = [
            await conversation.say(Turn(number, text, [{"role": "user", "content": text}]))
            for number, text in enumerate(("refund", "order A100", "say Bye."), 1)
        ]

    assert [response.value for response in answers] == ["Which order?", "Refunded A100.", "Bye."]
    first, second, third = executor.seen
    assert (first.context_id, second.context_id, third.context_id) == (answers[0].metadata["context_id"],) * 3
    assert second.task_id == answers[0].metadata["task_id"]
    assert third.task_id != second.task_id, "the task is completed"
    said = [response.metadata.get("steps", [{}])[0].get("public_output") for response in answers]
    assert said == ["Which order?", None, None], "a step belongs to its turn, whatever the task's history tells"


async def test_turns_of_a_test_case_are_held_to_the_one_that_fails(agent, open_target) -> None:
    _, card = await agent()
    target = ConversationTarget(open_target(card), "a2a", 10)
    client = TargetClient(target, RetryPolicy(1, 10))
    output = (await client.ask(conversation_of("refund", "order A100"))).output()
    assert [step["public_output"] for step in output.value["steps"]] == ["Which order?", "Refunded A100."]
    assert output.metadata["completed"] == 2
    broken = (await client.ask(conversation_of("refund", "fail", "order A100"))).output()
    assert broken.failure["message"].startswith("turn 2 of 3: ")
    assert len(broken.value["steps"]) == 1


async def test_a_message_is_a_template_over_the_test_case_and_its_turn(agent, open_target) -> None:
    executor, card = await agent()
    target = open_target(card, message=["say {{$.turn.input}}", {"kind": "data", "data": {"asked": "$.turn.input"}}])
    assert (await answer(target, "Where is it?")).value == "Where is it?"
    assert target.conversation_problem is None
    async with target.converse(conversation_of("And now?")) as conversation:
        await conversation.say(Turn(1, "And now?", []))
    assert [message.parts[1].data.struct_value["asked"] for message in executor.seen] == ["Where is it?", "And now?"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fail", "the agent's task failed: The warehouse is closed."),
        ("reject", "the agent's task was rejected: I only sell shoes."),
        ("auth", "the agent's task needs an authorization (auth-required): Please sign in."),
        ("nothing", "the agent's task is completed, and there is no text, data or file that could be the output"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_task_without_an_answer_is_an_error_with_the_agents_words(
    agent, open_target, text, words, streaming
) -> None:
    executor, card = await agent(streaming=streaming)
    target = open_target(card)
    error = await failure(target, text)
    assert str(error) == words
    assert not error.retryable
    await target.aclose()
    assert bool(executor.cancelled) == (text == "auth"), "only the task that waits is cancelled"


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_task_that_never_ends_is_cut_off_and_cancelled(agent, open_target, binding, streaming) -> None:
    executor, card = await agent(binding, streaming=streaming)
    target = open_target(card, {"concurrency": 1})  # the broken off call holds no connection that the wish needs
    client = TargetClient(target, RetryPolicy(attempts=1, timeout=3))

    record = await client.ask(TestCase(id="c", input="hang"))
    await target.aclose()

    assert str(record.error) == "the agent's task is working: no complete answer within 3 s (target.timeout)"
    metadata = record.output().metadata
    assert metadata["error"]["type"] == "timeout_error"
    assert executor.cancelled == [metadata["task_id"]]


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_agent_gets_the_headers_and_the_trace(agent, open_target, binding) -> None:
    executor, card = await agent(binding)
    place = ["127.0.0.1"] if binding == "GRPC" else []  # it has a port of its own
    traceparent.set("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await answer(open_target(card, headers={"X-Api-Key": "sesame-key"}, hosts=place), "say Hello.")
    assert executor.headers[0]["x-api-key"] == "sesame-key"
    assert executor.headers[0]["traceparent"] == traceparent.get()
    assert executor.seen[0].metadata["traceparent"] == traceparent.get()


async def test_an_agent_that_refuses_the_key_is_an_error_with_advice(agent, open_target) -> None:
    _, card = await agent(key="another")
    error = await failure(open_target(card, headers={"X-Api-Key": "sesame-key"}), "say Hello.")
    assert str(error) == 'HTTP 401 Unauthorized: {"error":"no key"}: check the credentials in target.a2a.headers'
    assert not error.retryable


async def test_the_card_is_read_once_for_many_calls(agent, open_target, monkeypatch) -> None:
    from a2a.client import A2ACardResolver

    reads = []
    read = A2ACardResolver.get_agent_card

    def counted(self, *args):
        reads.append(1)
        return read(self, *args)

    monkeypatch.setattr(A2ACardResolver, "get_agent_card", counted)
    _, card = await agent()
    target = open_target(card.removesuffix("/.well-known/agent-card.json"))
    await asyncio.gather(*(answer(target, f"say {number}") for number in range(5)))
    assert reads == [1]


async def test_grpc_on_another_port_gets_no_headers_unless_it_is_listed(agent, open_target) -> None:
    executor, card = await agent("GRPC")
    await answer(open_target(card, headers={"X-Api-Key": "sesame-key"}), "say Hello.")
    assert "x-api-key" not in executor.headers[0]


async def test_an_agent_that_is_down_may_be_tried_again(agent, open_target) -> None:
    refused = await failure(open_target("http://127.0.0.1:9/card.json"), "say Hello.")
    assert (refused.kind, refused.retryable) == ("connect", True)
    assert str(refused) == "the agent's card: connection refused by 127.0.0.1:9"
    _, card = await agent("GRPC", grpc_address="127.0.0.1:9")
    refused = await failure(open_target(card), "say Hello.")
    assert (refused.status, refused.retryable) == (503, True), refused
    assert "gRPC UNAVAILABLE" in str(refused)


async def test_an_answer_over_grpc_is_bounded_alone_and_in_sum(agent, open_target) -> None:
    _, card = await agent("GRPC")
    error = await failure(open_target(card, max_bytes=1_000), f"say {'x' * 2_000}")
    assert (error.kind, "target.a2a.max_bytes" in str(error)) == ("too_large", True), error
    error = await failure(open_target(card, max_bytes=300), "work")
    assert str(error) == "the answer is larger than 300 bytes (target.a2a.max_bytes)"


async def test_grpc_is_encrypted_where_the_card_is(serve, open_target, tmp_path, monkeypatch) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    cert.configure_cert(context)
    chain = b"".join(pem.bytes() for pem in cert.cert_chain_pems)
    tls = grpc.ssl_server_credentials([(cert.private_key_pem.bytes(), chain)])

    async def value_of_agent(place: str) -> Any:
        card = card_of("", "GRPC", streaming=True, grpc_address=place)
        described = json.loads(MessageToJson(card))

        async def handler(request: web.Request) -> web.Response:
            return web.json_response(described)

        target = open_target(await serve(handler, context))
        return (await answer(target, "say Hello.")).value

    async with grpc_server(Scripted(), tls) as place:
        assert await value_of_agent(place) == "Hello."
    async with grpc_server(Scripted()) as place:
        with pytest.raises(TargetError, match="gRPC UNAVAILABLE"):
            await value_of_agent(place)


def test_a_message_that_is_the_same_in_each_turn_holds_no_conversation(open_target) -> None:
    assert open_target("http://127.0.0.1:9/").conversation_problem is None
    same = open_target("http://127.0.0.1:9/", message="$.test_case.input")
    assert open_target("http://127.0.0.1:9/", message="Briefly: {{$.turn.input}}").conversation_problem is None
    assert same.conversation_problem.endswith("put $.turn.input into target.a2a.message")


def test_an_agent_that_is_named_over_the_network_cannot_speak_a2a(tmp_path) -> None:
    config = Target.model_validate({"a2a": {"card": "https://agent.example.com"}})
    with pytest.raises(InputError, match="given over the network is an HTTP address"):
        open_any(config, folder=tmp_path, case_ids=list, addresses=AgentAddresses())
