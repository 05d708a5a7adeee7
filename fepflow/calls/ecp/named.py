"""An agent that is named on the command line: a command, or an address."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import ValidationError

from fepflow.documents.validation_errors import validation_messages
from fepflow.errors import InputError, Problem
from fepflow.suite.target import Target


def target_of(text: str, variables: Sequence[str] = (), seconds: float | None = None) -> Target:
    """The target of a suite that has this agent, which gets these variables of the environment; its time-outs.

    Raises InputError.
    """
    where = {"url": text} if re.match("https?://", text, re.IGNORECASE) else {"command": text}
    ecp = {**where, "step_timeout": seconds, "start_timeout": seconds}
    data = {"ecp": {**ecp, "env": list(variables)} if variables else ecp}
    try:
        return Target.model_validate(data)
    except ValidationError as error:
        raise InputError(
            [Problem(item.message, advice=item.advice) for item in validation_messages(data, error)]
        ) from None
