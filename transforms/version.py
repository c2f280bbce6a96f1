"""The version of this tool, and of the data sets that it writes and reads."""

__version__ = "0.1.0"
FORMAT_VERSION = 1
NUMBERS_VERSION = 2  # of data sets whose labels are numbers, which earlier versions cannot read


def format_version(numeric_labels: bool) -> int:
    """The format that a data set is written in."""
    return NUMBERS_VERSION if numeric_labels else FORMAT_VERSION
