"""A small support agent that speaks the Evaluation Context Protocol 1.0: a line of JSON for each request and answer.

It looks up orders and the shop's refund policy with two tools, tells which of them it used and why it answers as it
does, and keeps in mind which order the talk is about. It needs Python only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

REFUND_DAYS = 30
ORDERS: dict[str, dict[str, Any]] = {
    "A100": {"item": "a pair of headphones", "days_since_delivery": 12, "status": "delivered"},
    "B200": {"item": "a coffee grinder", "days_since_delivery": 45, "status": "delivered"},
    "C300": {"item": "a desk lamp", "days_since_delivery": None, "status": "on its way"},
}

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
VERSION_UNSUPPORTED = -32001


class SupportAgent:
    """One talk with a customer; `reset` begins another one."""

    def __init__(self) -> None:
        self.order_id: str | None = None
        self.calls: list[dict[str, Any]] = []

    def reset(self) -> None:
        """Forget the customer."""
        self.order_id = None

    def step(self, text: str) -> dict[str, Any]:
        """The answer to what the customer says, with what an evaluator may see besides."""
        self.calls = []
        if named := re.search(r"\b[A-Z]\d{3}\b", text):
            self.order_id = named[0]
        answer, reason = self._answer(text.lower())
        return {
            "status": "done",
            "public_output": answer,
            "evaluation_context": reason,
            "tool_calls": self.calls,
            "usage": {"input_tokens": len(text.split()), "output_tokens": len(answer.split())},
        }

    def _answer(self, text: str) -> tuple[str, str]:
        if "refund" not in text and "order" not in text and self.order_id is None:
            return "Hello! I can look up orders, and see to refunds.", "nothing was asked about an order"
        if self.order_id is None:
            return "Which order is it about? It has a letter and three digits.", "the order is not known yet"
        order = self._call("lookup_order", order_id=self.order_id)
        if order is None:
            return f"I find no order {self.order_id}.", "no such order"
        if "refund" in text:
            return self._refund(order)
        return f"Order {self.order_id}, {order['item']}, is {order['status']}.", f"status={order['status']}"

    def _refund(self, order: dict[str, Any]) -> tuple[str, str]:
        policy = self._call("check_refund_policy", order_id=self.order_id)
        reason = f"refund_eligible={policy['eligible']}: {policy['reason']}"
        if policy["eligible"]:
            return f"Order {self.order_id}, {order['item']}, is eligible for a refund.", reason
        return f"I am sorry: order {self.order_id} is not eligible for a refund, as {policy['reason']}.", reason

    def _call(self, tool: str, **arguments: Any) -> Any:
        self.calls.append({"name": tool, "arguments": arguments})
        return TOOLS[tool](**arguments)


def lookup_order(order_id: str) -> dict[str, Any] | None:
    """The order of that id."""
    return ORDERS.get(order_id)


def check_refund_policy(order_id: str) -> dict[str, Any]:
    """Return whether the policy allows a refund of an order, and why."""
    days = ORDERS[order_id]["days_since_delivery"]
    if not isinstance(days, int):
        return {"eligible": False, "reason": "it is not delivered yet"}
    if days > REFUND_DAYS:
        return {"eligible": False, "reason": f"it was delivered {days} days ago, and {REFUND_DAYS} are allowed"}
    return {"eligible": True, "reason": f"it was delivered {days} days ago"}


TOOLS: dict[str, Callable[..., Any]] = {"lookup_order": lookup_order, "check_refund_policy": check_refund_policy}


class ProtocolError(Exception):
    """Answer to a request that cannot be served."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent says of itself; raise ProtocolError for a version that it does not speak."""
    version = params.get("protocol_version", "1.0")
    if not isinstance(version, str) or not re.fullmatch(r"\d+\.\d+", version):
        raise ProtocolError(INVALID_PARAMS, "protocol_version reads like 1.0")
    if version.partition(".")[0] != "1":
        raise ProtocolError(VERSION_UNSUPPORTED, f"version {version} is not spoken here, but 1.0")
    told = ("tool_calls", "evaluation_context", "usage", "reset", "multi_turn")
    capabilities: dict[str, Any] = {name: {} for name in told}
    return {"name": "support", "protocol_version": "1.0", "capabilities": capabilities}


def serve_request(agent: SupportAgent, request: Any) -> Any:
    """The result of a request; raises ProtocolError."""
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        raise ProtocolError(INVALID_REQUEST, "a request is an object with a method")
    params = request.get("params") or {}
    if request["method"] == "agent/initialize":
        return initialize(params)
    if request["method"] == "agent/reset":
        agent.reset()
        return True
    if request["method"] != "agent/step":
        raise ProtocolError(METHOD_NOT_FOUND, f"there is no method {request['method']}")
    if not isinstance(params, dict) or not isinstance(params.get("input"), str):
        raise ProtocolError(INVALID_PARAMS, "input is a text")
    return agent.step(params["input"])


def answer(agent: SupportAgent, line: str) -> dict[str, Any] | None:
    """The answer to a line, an object of JSON-RPC; None to a notification, which has no id."""
    try:
        request = json.loads(line)
    except ValueError:
        return {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": "this is not JSON"}}
    is_notification = isinstance(request, dict) and "method" in request and "id" not in request
    head = {"jsonrpc": "2.0", "id": request.get("id") if isinstance(request, dict) else None}
    try:
        reply = {**head, "result": serve_request(agent, request)}
    except ProtocolError as error:
        reply = {**head, "error": {"code": error.code, "message": str(error)}}
    return None if is_notification else reply


def main() -> None:
    """Answer each line of stdin on stdout, and nothing else there."""
    agent = SupportAgent()
    for line in sys.stdin:
        if line.strip() and (reply := answer(agent, line)) is not None:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
