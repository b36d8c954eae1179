"""Schemas by number from a schema registry: those that the records of an interval name.

A number stands for the same schema for good, so what was once answered is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import httpx

from lockstep.errors import Unreachable

__all__ = ["registry_schema", "registry_schemas"]

TIMEOUT_SECONDS = 30.0
KEPT_SCHEMAS = 4096


class _NoSuchSchemaError(Exception):
    pass


def registry_schemas(url: str, numbers: Iterable[int]) -> Mapping[int, str]:
    """The schemas of those numbers that the registry knows. Raises Unreachable."""
    found = ((number, registry_schema(url, number)) for number in sorted(set(numbers)))
    return {number: schema for number, schema in found if schema is not None}


def registry_schema(url: str, number: int) -> str | None:
    """The schema as text, '' where it is of another kind than Avro, None where there is none of
    that number. Raises Unreachable."""
    try:
        return _asked(url.rstrip("/"), number)
    except _NoSuchSchemaError:
        return None


@lru_cache(maxsize=KEPT_SCHEMAS)
def _asked(url: str, number: int) -> str:
    """What is not there may come to be: only answers are remembered, as errors are not cached."""
    try:
        answer = httpx.get(f"{url}/schemas/ids/{number}", timeout=TIMEOUT_SECONDS)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise _NoSuchSchemaError
        answer.raise_for_status()
        found = answer.json()
        return str(found["schema"]) if found.get("schemaType", "AVRO") == "AVRO" else ""
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise Unreachable(
            f"the schema registry at {url} does not give schema {number}",
            expected="an answer with the schema, or that there is none",
            found=str(error) or type(error).__name__,
            next_step="see that the registry runs, and that 'schema.registry.url' is its address",
        ) from error
