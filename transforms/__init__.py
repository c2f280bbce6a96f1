"""LIBSVM text -> feature-partitioned Parquet: parser, Map/Reduce graph, the data set on disk."""

from transforms.arrays import from_arrays
from transforms.check import check_dataset
from transforms.convert import convert_libsvm
from transforms.dataset import Dataset, Partition, open_dataset
from transforms.errors import BadLine, DatasetError, OutputExists, UserError
from transforms.parts import Csc
from transforms.version import __version__

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
