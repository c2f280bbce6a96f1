"""What is wrong with a cluster, or with this machine, before a long job finds out: `dask-submit doctor`.

Each file looks at one thing and returns rows. A question that is not answered in time is a row too.
"""

from pipeline.doctor.examination import examine
from pipeline.doctor.row import OK, WARN, WRONG, Row

__all__ = ["OK", "WARN", "WRONG", "Row", "examine"]
