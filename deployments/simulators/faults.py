"""Faults that the simulated model can be configured to have."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import parse_qsl

from fepflow.deployments.simulators.generators import fraction

Fault = Literal[
    "rate_limited",  # 429 with Retry-After
    "quota",  # 429: the money is used up
    "error",  # 500
    "overloaded",  # 529
    "unauthorized",  # 401, in whose message the key stands, as some providers have it
    "dropped",  # the connection is closed without an answer
    "truncated",  # the connection is closed in the middle of the answer
    "garbled",  # the answer is not JSON
    "hang",  # there is no answer, ever
    "refusal",  # the model refuses to answer
    "filtered",  # a filter keeps the answer back
    "cut_off",  # the answer ends where max_tokens is reached
    "empty",  # the answer is an empty text
    "prose",  # the answer is a sentence, and no JSON
    "misfit",  # the answer is JSON, and not as the schema has it
    "fenced",  # the answer is JSON in a code fence
    "no_usage",  # no usage is reported
    "shuffled",  # embeddings come in another order than their texts
    "no_index",  # embeddings come without their last one
]
FAULTS: tuple[str, ...] = get_args(Fault)


@dataclass(frozen=True)
class FaultConfig:
    """How the stand-in behaves; each request may set them for itself, see `fault_config_of`.

    `fault` strikes the first `times` requests of a model (0: all of them), or with `often` below 1 that part of all
    requests. `say` is the text of the answer, whatever is asked; of several, `||` between them, each request gets the
    next. `refuse` are the response formats, separated by commas, that are refused with a 400; `reject` are parameters,
    and `forbid` is a word in texts to embed, of which the same is true.
    """

    latency: float = 0.0
    fault: str = ""
    times: int = 0
    often: float = 1.0
    retry_after: str = "1"
    refuse: str = ""
    reject: str = ""
    forbid: str = ""
    say: str = ""

    def text_for(self, count: int) -> str:
        """What is said to the `count`-th request, from 1."""
        texts = self.say.split("||")
        return texts[(count - 1) % len(texts)]

    def strikes(self, seed: int, count: int) -> bool:
        """Whether the fault strikes the `count`-th request, from 1."""
        if not self.fault or (self.times and count > self.times):
            return False
        return fraction(seed, self.fault, count) < self.often


def fault_config_of(model: str, usual: FaultConfig) -> FaultConfig:
    """The knobs that a model's name asks for: `stand-in?fault=rate_limited&times=2`. Raises ValueError."""
    hints = get_type_hints(FaultConfig)
    given: dict[str, Any] = {item.name: getattr(usual, item.name) for item in fields(FaultConfig)}
    for name, text in parse_qsl(model.partition("?")[2]):
        if name not in hints:
            raise ValueError(f"there is no knob {name} (there are {', '.join(hints)})")
        given[name] = hints[name](text)
    if given["fault"] and given["fault"] not in FAULTS:
        raise ValueError(f"there is no fault {given['fault']} (there are {', '.join(FAULTS)})")
    return FaultConfig(**given)
