"""The control store's URL, in words that can be shown: whatever may be its password is left out.

Messages are in terminals, in the logs of tasks, and on Airflow's page. SQLAlchemy hides a password that
it has found; one with an @ that is not written %40 it takes for a host, a port or a database's name.
"""

from __future__ import annotations

import re
from contextlib import suppress

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from lockstep.errors import WrongUse

__all__ = ["parsed", "shown", "unusable"]

_OF_POSTGRESQL = "postgresql+psycopg"
_WHO = re.compile(r"://.*@", re.DOTALL)
_PASSWORD_IN_QUERY = re.compile(r"([?&][^=&]*password=)[^&]*", re.IGNORECASE)


def parsed(url: str) -> URL:
    """The URL by its parts. Raises WrongUse, without SQLAlchemy's own error: that quotes what it could
    not read."""
    with suppress(ArgumentError, ValueError):
        return make_url(url)
    raise _refused(
        _beginning(url),
        "what is no URL of a database; in a password, @ is written %40",
        "set LOCKSTEP_STORE_URL",
    )


def shown(url: str) -> str:
    """The URL without its user, whose password may have any character, and without one in its query."""
    # A path of SQLite has neither, and may have an @.
    if not url.startswith("sqlite:///"):
        url = _WHO.sub("://***@", url)
    return _PASSWORD_IN_QUERY.sub(r"\1***", url)


def unusable(url: str, found: str) -> WrongUse:
    """The refusal of a URL that has been parsed, for what was found."""
    scheme = url.partition("://")[0]
    if scheme == _OF_POSTGRESQL:
        next_step = "install psycopg, or set LOCKSTEP_STORE_URL"
    elif scheme.startswith("postgres"):
        next_step = f"begin LOCKSTEP_STORE_URL with {_OF_POSTGRESQL}:// in place of {scheme}://"
    else:
        next_step = "set LOCKSTEP_STORE_URL"
    return _refused(shown(url), found, next_step)


def _refused(shown_url: str, found: str, next_step: str) -> WrongUse:
    return WrongUse(
        f"the control store's URL '{shown_url}' cannot be used",
        expected=f"sqlite:////folder/control.db, or {_OF_POSTGRESQL}://user@host/database "
        "with psycopg installed",
        found=found,
        next_step=next_step,
    )


def _beginning(url: str) -> str:
    """Of what is no URL: a word as it is, else only what database it says it is of."""
    if re.fullmatch(r"\w*", url):
        return url
    scheme = re.match(r"[\w+]+://", url)
    return f"{scheme.group() if scheme else ''}…"
