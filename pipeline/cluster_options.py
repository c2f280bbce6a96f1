"""What a user says about a cluster. Apart from cluster.py, which opens it: a refusal need not wait for Dask."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.tls import TlsFiles


@dataclass(frozen=True)
class ClusterOptions:
    """What the user said about the cluster. Without a scheduler, one is embedded."""

    scheduler: str | None = None
    workers: int | None = None
    processes: bool = False
    memory_limit: str | None = None  # of one worker
    tls: TlsFiles = field(default_factory=TlsFiles)
