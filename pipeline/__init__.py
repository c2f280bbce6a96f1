"""Dask and the outside world: clusters, resident blocks, run folders, commands."""

from pipeline.fit import FitWatcher, PathOptions, fit_path
from pipeline.run import Run

__all__ = ["FitWatcher", "PathOptions", "Run", "fit_path"]
