"""What is wrong with a cluster, or with this machine, before a long job finds out: `dask-submit doctor`.

Each file looks at one thing and returns rows; `examine` (examination.py) asks them all. A question that is not answered
in time is a row too.
"""

from pipeline.doctor.row import OK, WARN, WRONG, Row

__all__ = ["OK", "WARN", "WRONG", "Row"]
