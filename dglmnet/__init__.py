"""L1-regularised logistic regression on data that outgrows one machine: the public names, in one place.

    from dglmnet import L1LogisticRegressionPath, convert_libsvm, fit_path

A name is loaded when it is first asked for, so that `import dglmnet` costs little. To add one, name it in three places:
where type checkers look, in `__all__`, and with its module in `_HOMES`.
"""

from typing import TYPE_CHECKING

from dglmnet._homes import load

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
    from pipeline.stages import PipelineOptions, PipelineResult, run_pipeline
    from solver import ConvergenceWarning, DefaultOptions, ProblemOptions, SolverOptions, TruncatedGradientOptions
    from transforms.arrays import from_arrays
    from transforms.check import check_dataset
    from transforms.convert import convert_libsvm
    from transforms.dataset import Dataset, Partition, open_dataset
    from transforms.errors import BadLine, ClusterLost, DatasetError, OutputExists, UserError
    from transforms.version import __version__

__all__ = [
    "BadLine",
    "ClusterLost",
    "ConvergenceWarning",
    "Dataset",
    "DatasetError",
    "DefaultOptions",
    "Evaluation",
    "L1LinearRegression",
    "L1LogisticRegression",
    "L1LogisticRegressionPath",
    "OutputExists",
    "Partition",
    "PathModel",
    "PathOptions",
    "PipelineOptions",
    "PipelineResult",
    "Prediction",
    "ProblemOptions",
    "Run",
    "SolverOptions",
    "TruncatedGradientOptions",
    "UserError",
    "Watcher",
    "__version__",
    "check_dataset",
    "convert_libsvm",
    "evaluate",
    "fit_path",
    "from_arrays",
    "open_dataset",
    "predict",
    "run_pipeline",
    "write_report",
]

_HOMES = {
    "BadLine": "transforms.errors",
    "ClusterLost": "transforms.errors",
    "ConvergenceWarning": "solver",
    "Dataset": "transforms.dataset",
    "DatasetError": "transforms.errors",
    "DefaultOptions": "solver",
    "Evaluation": "pipeline.evaluation",
    "Watcher": "pipeline.events",
    "L1LinearRegression": "pipeline.estimators.linear",
    "L1LogisticRegression": "pipeline.estimators.single",
    "L1LogisticRegressionPath": "pipeline.estimators.path",
    "OutputExists": "transforms.errors",
    "Partition": "transforms.dataset",
    "PathModel": "pipeline.model",
    "PathOptions": "pipeline.fit_options",
    "PipelineOptions": "pipeline.stages",
    "PipelineResult": "pipeline.stages",
    "Prediction": "pipeline.prediction",
    "ProblemOptions": "solver",
    "Run": "pipeline.run",
    "SolverOptions": "solver",
    "TruncatedGradientOptions": "solver",
    "UserError": "transforms.errors",
    "__version__": "transforms.version",
    "check_dataset": "transforms.check",
    "convert_libsvm": "transforms.convert",
    "evaluate": "pipeline.evaluation",
    "fit_path": "pipeline.fit",
    "from_arrays": "transforms.arrays",
    "open_dataset": "transforms.dataset",
    "predict": "pipeline.prediction",
    "run_pipeline": "pipeline.stages",
    "write_report": "pipeline.report.write",
}

if not TYPE_CHECKING:  # a type checker would take it for "any name will do"

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(load(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
