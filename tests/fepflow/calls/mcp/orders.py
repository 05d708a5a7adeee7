"""A server of orders, built with the public SDK: `python orders.py` speaks MCP on stdin and stdout."""

import asyncio
import os
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel

app = MCPServer("orders", version="1.2")
cancelled: list[str] = []


class Order(BaseModel):
    """An order."""

    id: str
    total: float


@app.tool(annotations=ToolAnnotations(read_only_hint=True))
def get_order(order_id: str) -> Order:
    """Find an order."""
    if order_id != "A100":
        raise ToolError(f"no such order: {order_id}")
    return Order(id=order_id, total=9.5)


@app.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def greet(name: str = "you") -> str:
    """Greet."""
    return f"Hello {name}"


@app.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
async def wait(seconds: float, ctx: Context) -> str:
    """Wait, and tell how far it is."""
    await ctx.report_progress(1, 3, "began")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        cancelled.append("wait")
        raise
    return "done"


@app.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def was_cancelled() -> str:
    """Tell how many calls were cancelled."""
    return str(len(cancelled))


@app.tool(structured_output=False)
def environment(ctx: Context) -> list[Any]:
    """Tell what the process got, and the request."""
    meta: Any = ctx.request_context.meta or {}
    return [os.environ.get("ORDERS_TOKEN", "none"), os.environ.get("UNNAMED", "none"), meta.get("traceparent", "none")]


@app.tool(annotations=ToolAnnotations(destructive_hint=True))
def delete_order(order_id: str) -> bool:
    """Delete an order."""
    raise AssertionError("nobody is to call this")


@app.tool(annotations=ToolAnnotations(destructive_hint=True), structured_output=False)
def crash() -> str:
    """End the process."""
    os.write(2, b"out of orders\n")
    os._exit(3)


if __name__ == "__main__":
    app.run("stdio")
