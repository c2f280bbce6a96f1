"""Find the packages that lie beside this one, even where a script has a module of the same name beside it.

transforms, solver and pipeline are top-level names, and a script's own folder comes first on Python's path. So they are
looked for beside this package first. What cannot be had: two modules of one name in one process. After dglmnet was
asked for a name, `import pipeline` gives its package; where the script imported its own before, dglmnet says so. A
worker process imports by name only, and finds the script's module if its folder is on the worker's path.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

BESIDE = Path(__file__).resolve().parent.parent
# Each with the packages that it imports, which must be the right ones, too.
_PACKAGES = {
    "transforms": ("transforms",),
    "solver": ("solver",),
    "pipeline": ("transforms", "solver", "pipeline"),
}


def load(name: str) -> ModuleType:
    """The module `name` of one of the packages."""
    for package in _PACKAGES[name.partition(".")[0]]:
        _load_package(package)
    return import_module(name)


def _load_package(name: str) -> None:
    found = sys.modules.get(name)
    if found is None:
        _load_beside(name)
    elif not _is_ours(found):
        where = getattr(found, "__file__", None) or "a module without a file"
        raise ImportError(
            f"dglmnet needs its package {name!r}, but {where} has that name and was imported first: import dglmnet's "
            "names before it, or rename it"
        )


def _is_ours(module: ModuleType) -> bool:
    return any(Path(place).resolve() == BESIDE / module.__name__ for place in getattr(module, "__path__", ()))


def _load_beside(name: str) -> None:
    """Import a package from beside this one, as `import` would if nothing were in its way."""
    spec = PathFinder.find_spec(name, [str(BESIDE)])
    if spec is None or spec.loader is None:
        raise ImportError(f"dglmnet is not installed as a whole: there is no package {name!r} in {BESIDE}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
