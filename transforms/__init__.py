"""LIBSVM text -> feature-partitioned Parquet: parser, Map/Reduce graph, the data set on disk.

A name is loaded when it is first asked for: a command's --help, or a tab key, need not wait for numba. To add one, name
it in three places: where type checkers look, in `__all__`, and with its module in `_HOMES`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from transforms.errors import BadLine, DatasetError, OutputExists, UserError
from transforms.version import __version__

if TYPE_CHECKING:
    from transforms.arrays import from_arrays
    from transforms.check import check_dataset
    from transforms.convert import convert_libsvm
    from transforms.dataset import Dataset, Partition, open_dataset
    from transforms.parts import Csc

__all__ = [
    "BadLine",
    "Csc",
    "Dataset",
    "DatasetError",
    "OutputExists",
    "Partition",
    "UserError",
    "__version__",
    "check_dataset",
    "convert_libsvm",
    "from_arrays",
    "open_dataset",
]

_HOMES = {
    "Csc": "transforms.parts",
    "Dataset": "transforms.dataset",
    "Partition": "transforms.dataset",
    "check_dataset": "transforms.check",
    "convert_libsvm": "transforms.convert",
    "from_arrays": "transforms.arrays",
    "open_dataset": "transforms.dataset",
}

if not TYPE_CHECKING:  # a type checker would take it for "any name will do"

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
