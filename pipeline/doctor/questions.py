"""Questions to a cluster, each with a time limit. What does not answer is an answer too.

Workers run a question in a thread of its own: one that takes long keeps neither their heartbeats nor a running job
waiting. A question that is defined inside another function travels by value, so that a worker or scheduler without this
package can answer it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from transforms.liveness import ask_scheduler, ask_workers

PATIENCE_SECONDS = 10.0  # with a worker: one that is stopped never answers


@dataclass(frozen=True)
class Failure:
    """The answer of a worker or scheduler that could not answer: the reason."""

    reason: str


@dataclass
class Cluster:
    """A scheduler and those of its workers, address -> name, that have answered every question so far."""

    client: Client
    names: dict[str, str]
    unable: set[str] = field(default_factory=set)  # those without this package, or with another version of it

    def ask(
        self,
        question: Callable[..., Any],
        *args: Any,
        patience: float = PATIENCE_SECONDS,
        needs_package: bool = False,
    ) -> dict[str, Any | Failure]:
        """What each worker answers to question(worker, *args). One that is silent is not asked again."""
        asked = self.able() if needs_package else list(self.names)
        answers, _ = ask_workers(self.client, _on_worker(question), args, addresses=asked, patience=patience)
        found = {}
        for address in asked:
            if address in answers:
                found[self.names[address]] = _opened(answers[address])
            else:
                found[self.names.pop(address)] = Failure(f"no answer within {patience:.0f} s")
        return dict(sorted(found.items()))

    def able(self) -> list[str]:
        """The workers that can be asked what needs this package."""
        return [address for address in self.names if address not in self.unable]

    def ask_scheduler(self, question: Callable[..., Any], *args: Any) -> Any | Failure:
        """What the scheduler answers to question(scheduler, *args)."""
        return _opened(ask_scheduler(self.client, _on_scheduler(question), args))


def _opened(answer: Any) -> Any | Failure:
    """Workers wrap what they answer, as an error of theirs must not be taken for one of the network's."""
    if isinstance(answer, Exception):
        return Failure(f"{type(answer).__name__}: {answer}".splitlines()[0])
    found, reason = answer
    return found if reason is None else Failure(reason)


def _on_worker(question: Callable[..., Any]) -> Callable[..., Any]:
    async def run(args: tuple[Any, ...], dask_worker: Any) -> tuple[Any, str | None]:
        import asyncio

        try:
            return await asyncio.to_thread(question, dask_worker, *args), None
        except Exception as error:
            ours = type(error).__module__ == "transforms.errors"  # which say it all
            return None, str(error) if ours else f"{type(error).__name__}: {error}"

    return run


def _on_scheduler(question: Callable[..., Any]) -> Callable[..., Any]:
    async def run(args: tuple[Any, ...], dask_scheduler: Any) -> tuple[Any, str | None]:
        import asyncio

        try:
            return await asyncio.to_thread(question, dask_scheduler, *args), None
        except Exception as error:
            ours = type(error).__module__ == "transforms.errors"  # which say it all
            return None, str(error) if ours else f"{type(error).__name__}: {error}"

    return run
