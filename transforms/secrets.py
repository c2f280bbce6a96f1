"""Take secrets out of text that people may read: logs, errors, reports. Dask, too, logs what a task raises."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

from transforms.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
SHORTEST_SECRET = 4  # a shorter value says nothing, and would blot out half of every message
HIDDEN = "***"
_USER = re.compile(r"(\w://)[^/\s'\"<>]*@")
_QUERY = re.compile(r"(https?://[^\s?'\"<>]*)\?[^\s'\"<>)\]]*", re.IGNORECASE)
_SECRET_NAMES = re.compile(r"secret|token|passw|credential|key|sas|auth|connection_string", re.IGNORECASE)
# Storage options that say where a store is: messages need them, without a password that may stand in an address.
_OPEN_NAMES = re.compile(r"endpoint|url|host|port|region|profile|style|version|protocol|account_name", re.IGNORECASE)


def hide_in_urls(text: str) -> str:
    """The text with its URLs without user names, passwords and queries, which may be signatures."""
    return _QUERY.sub(rf"\1?{HIDDEN}", _USER.sub(r"\1", text))


def make_scrubber(storage: dict[str, Any]) -> Callable[[str], str]:
    """A function that takes the values of storage options, and what stands in URLs, out of a text."""
    found = {one for one in _values(storage, "") if len(one) >= SHORTEST_SECRET}
    secrets = sorted(found | {quote(one, safe="") for one in found}, key=len, reverse=True)

    def scrub(text: str) -> str:
        text = hide_in_urls(text)
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    return scrub


def _values(value: Any, name: str) -> Iterator[str]:
    """The texts in storage options that are, or may be, secrets."""
    if isinstance(value, str):
        yield from _in_address(value) if _OPEN_NAMES.search(name) else [value]
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _values(one, str(key))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _values(one, name)


def _in_address(url: str) -> Iterator[str]:
    """User name, password and query of a URL."""
    user = re.match(r"(?:\w+://)?([^/]*)@", url)
    if user:
        yield from (user[1], *user[1].split(":", 1))
    if "?" in url:
        yield url.partition("?")[2]


def holds_secret(storage: dict[str, Any]) -> bool:
    """Does a storage option look like a secret by its name?"""
    return any(
        holds_secret(one) if isinstance(one, dict) else isinstance(one, str) and bool(_SECRET_NAMES.search(str(name)))
        for name, one in storage.items()
    )


def without_secrets(task: F) -> F:
    """A task whose errors tell no secrets: the worker that runs it logs them. Other errors stay as they are."""

    @functools.wraps(task)
    def run(*args: Any, **more: Any) -> Any:
        try:
            return task(*args, **more)
        except Exception as error:
            scrub = make_scrubber({str(k): one for k, one in enumerate(_storage_options((*args, *more.values())))})
            texts = [str(one) for one in (error, *error.args, getattr(error, "filename", None) or "")]
            if all(scrub(text) == text for text in texts):
                raise
            raise _like(error, scrub) from None

    return run  # type: ignore[return-value]


def _like(error: Exception, scrub: Callable[[str], str]) -> Exception:
    """The error without secrets: still the user's to mend if it was."""
    from transforms.storage import explain  # here, as --help and the tab key need not wait for it

    what = str(error) if isinstance(error, UserError) else explain(error)
    if what is not None:
        return UserError(scrub(what))
    return OSError(f"{type(error).__name__}: {scrub(str(error))}")


def _storage_options(args: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for one in args:
        options = one if isinstance(one, dict) else getattr(one, "options", None)
        if isinstance(options, dict):
            yield options
