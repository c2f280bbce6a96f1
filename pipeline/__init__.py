"""Dask and the outside world: clusters, resident blocks, run folders, models, commands.

A name is loaded when it is first asked for: a command's --help, or a tab key, need not wait for numba. To add one, name
it in three places: where type checkers look, in `__all__`, and with its module in `_HOMES`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.estimators.linear import L1LinearRegression
    from pipeline.estimators.path import L1LogisticRegressionPath
    from pipeline.estimators.single import L1LogisticRegression
    from pipeline.evaluation import Evaluation, evaluate
    from pipeline.events import Watcher
    from pipeline.fit import fit_path
    from pipeline.fit_options import PathOptions
    from pipeline.model import PathModel
    from pipeline.prediction import Prediction, predict
    from pipeline.report.write import write_report
    from pipeline.run import Run

__all__ = [
    "Evaluation",
    "L1LinearRegression",
    "L1LogisticRegression",
    "L1LogisticRegressionPath",
    "PathModel",
    "PathOptions",
    "Prediction",
    "Run",
    "Watcher",
    "evaluate",
    "fit_path",
    "predict",
    "write_report",
]

_HOMES = {
    "Evaluation": "pipeline.evaluation",
    "Watcher": "pipeline.events",
    "L1LinearRegression": "pipeline.estimators.linear",
    "L1LogisticRegression": "pipeline.estimators.single",
    "L1LogisticRegressionPath": "pipeline.estimators.path",
    "PathModel": "pipeline.model",
    "PathOptions": "pipeline.fit_options",
    "Prediction": "pipeline.prediction",
    "Run": "pipeline.run",
    "evaluate": "pipeline.evaluation",
    "fit_path": "pipeline.fit",
    "predict": "pipeline.prediction",
    "write_report": "pipeline.report.write",
}

if not TYPE_CHECKING:  # a type checker would take it for "any name will do"

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
