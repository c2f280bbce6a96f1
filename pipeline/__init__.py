"""Dask and the outside world: clusters, resident blocks, run folders, models, commands."""

from pipeline.evaluation import Evaluation, evaluate
from pipeline.fit import FitWatcher, PathOptions, fit_path
from pipeline.model import PathModel
from pipeline.prediction import Prediction, predict
from pipeline.run import Run

__all__ = [
    "Evaluation",
    "FitWatcher",
    "PathModel",
    "PathOptions",
    "Prediction",
    "Run",
    "evaluate",
    "fit_path",
    "predict",
]
