"""The version of this tool, and of the data sets that it writes and reads."""

__version__ = "0.1.0"
FORMAT_VERSION = 1
