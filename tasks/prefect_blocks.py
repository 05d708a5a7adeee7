"""Secret and Variable blocks of Prefect, as values of suites, so that workers need no secrets in their environment."""

from __future__ import annotations

from prefect import get_client
from prefect.exceptions import ObjectNotFound

from fepflow.errors import InfrastructureError
from fepflow.json.values import texts_in
from fepflow.security.redaction import remember, words_of
from fepflow.text import text_of


def read_block(kind: str, name: str) -> str | None:
    """Return the value of a Secret block or a variable as text, JSON if it is not text, or None if it does not exist.

    Raises InfrastructureError if Prefect's API does not answer.
    """
    try:
        with get_client(sync_client=True) as client:
            if kind == "variable":
                variable = client.read_variable_by_name(name)
                return None if variable is None else text_of(variable.value)
            # Not by the block's class: it would take a digit for a number, and JSON for what it stands for.
            value = client.read_block_document_by_name(name, "secret", include_secrets=True).data.get("value")
    except ObjectNotFound:
        return None
    except Exception as error:  # whatever httpx, pydantic and Prefect raise where the API is away, or another one
        raise InfrastructureError(f"Prefect's API does not answer: {words_of(error) or type(error).__name__}") from None
    remember(text for _, text in texts_in(value))
    return None if value is None else text_of(value)
