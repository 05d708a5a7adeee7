"""An agent built with the public SDK, which does what it is told, over JSON-RPC, REST and gRPC on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import add_A2AServiceServicer_to_server as add_old_servicer
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import (
    new_data_part,
    new_message,
    new_raw_part,
    new_task_from_user_message,
    new_text_part,
    new_url_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part, TaskState
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


class Scripted(AgentExecutor):
    """An agent whose behaviour is the text that it gets; `seen` are the messages, `cancelled` the tasks."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.cancelled: list[str] = []
        self.began = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do what the text of the message says."""
        text = context.get_user_input()
        self.seen.append(context.message)
        state = context.call_context.state
        over_grpc = state["grpc_context"].invocation_metadata() if "grpc_context" in state else {}
        self.headers.append(dict(over_grpc or state["headers"]))
        if text.startswith("say "):
            await event_queue.enqueue_event(new_message([new_text_part(text[4:])], context_id=context.context_id))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        self.began.set()

        def words(*parts: Part | str) -> Any:
            return task.new_agent_message([new_text_part(part) if isinstance(part, str) else part for part in parts])

        match text.split():
            case ["work"]:
                await task.start_work(words("Looking it up."))
                await task.add_artifact([new_text_part("Paid ")], artifact_id="a", name="answer")
                await task.add_artifact([new_text_part("back.")], artifact_id="a", append=True, last_chunk=True)
                await task.complete()
            case ["words"]:
                await task.complete(words("First.", "Second."))
            case ["data"]:
                await task.add_artifact([new_data_part({"total": 42, "paid": True})])
                await task.complete()
            case ["mixed"]:
                file = new_raw_part(b"%PDF-1.7", media_type="application/pdf", filename="bill.pdf")
                await task.add_artifact([new_text_part("The bill."), new_data_part({"total": 42}), file], name="bill")
                await task.add_artifact([new_url_part("https://example.com/logo.png", media_type="image/png")])
                await task.complete()
            case ["usage"]:
                metadata = {"usage": {"total_tokens": 120}, "cost_usd": 0.25}
                await task.update_status(TaskState.TASK_STATE_COMPLETED, words("Cheap."), metadata=metadata)
            case ["refund"]:
                await task.requires_input(words("Which order?"))
            case ["order", number]:
                await task.add_artifact([new_text_part(f"Refunded {number}.")])
                await task.complete()
            case ["fail"]:
                await task.failed(words("The warehouse is closed."))
            case ["reject"]:
                await task.reject(words("I only sell shoes."))
            case ["auth"]:
                await task.requires_auth(words("Please sign in."))
            case ["nothing"]:
                await task.complete()
            case ["hang"]:
                await task.start_work()
                await asyncio.sleep(60)
            case _:
                raise RuntimeError("the agent crashed")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """End a task."""
        self.cancelled.append(context.task_id or "")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card_of(url: str, *bindings: str, streaming: bool, version: str = "1.0", grpc_address: str = "") -> AgentCard:
    return AgentCard(
        name="Scripted",
        description="It does what it is told.",
        version="2.1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=AgentCapabilities(streaming=streaming),
        skills=[AgentSkill(id="s", name="s", description="s", tags=["s"])],
        supported_interfaces=[
            AgentInterface(
                protocol_binding=binding,
                url=grpc_address if binding == "GRPC" else f"{url}/{'rpc' if binding == 'JSONRPC' else 'rest'}",
                protocol_version=version,
            )
            for binding in bindings
        ],
    )


def app_of(executor: Scripted, card: AgentCard, key: str | None = None) -> ASGIApp:
    """The application of an agent; with a `key` its endpoints answer 401 to whoever has another one."""
    handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card)
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
        *create_rest_routes(handler, path_prefix="/rest", enable_v0_3_compat=True),
    ]
    app = Starlette(routes=routes)
    if key is not None:

        async def refuse(request: Request, call_next: Any) -> Response:
            if request.headers.get("x-api-key") != key and "well-known" not in request.url.path:
                return JSONResponse({"error": "no key"}, 401)
            return await call_next(request)

        from starlette.middleware.base import BaseHTTPMiddleware

        app.add_middleware(BaseHTTPMiddleware, dispatch=refuse)
    return app


@asynccontextmanager
async def grpc_server(executor: Scripted, tls: grpc.ServerCredentials | None = None) -> AsyncIterator[str]:
    """The address of the agent in gRPC."""
    handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card_of("", "GRPC", streaming=True))
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    add_old_servicer(CompatGrpcHandler(handler), server)
    port = server.add_secure_port("127.0.0.1:0", tls) if tls else server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
