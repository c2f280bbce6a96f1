"""The decorators of all kernels.

numba keeps compiled kernels on disk and compiles again when the kernel's own file has changed. Kernels of this folder
call functions of other files in it, so here the stamp of a kernel covers the whole folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba as nb

# What a sum over vector lanes needs. NaN and infinity keep their meaning.
SUMS = {"reassoc", "contract", "nsz", "arcp"}
FOLDER = Path(__file__).parent


def _stamp() -> tuple[Any, ...]:
    """Times and sizes of the files of this folder."""
    files = sorted(FOLDER.glob("*.py"))
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files)


_STAMP = _stamp()


def _compile(**how: Any) -> Callable[[Callable[..., Any]], Any]:
    # The numpy error model drops the test for division by zero, which would keep a loop from being vectorised. Nobody
    # calls kernels by a C function pointer.
    decorate = nb.njit(nogil=True, cache=True, error_model="numpy", no_cfunc_wrapper=True, **how)

    def compile_later(function: Callable[..., Any]) -> Any:
        dispatcher = decorate(function)
        files: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if hasattr(files, "_source_stamp"):  # private to numba: without it, the cache knows the kernel's own file only
            files._source_stamp = (files._source_stamp, _STAMP)
        return dispatcher

    return compile_later


# Of each kind, a function that Python calls, and a part of such functions. A part cannot be called from Python: what
# takes Python's objects apart takes as long to compile as a small function itself.
kernel = _compile(fastmath=SUMS)
kernel_part = _compile(fastmath=SUMS, no_cpython_wrapper=True)
# Sums over lists of positions, in the order written. Reordered, they would be vectorised by gathers, which took 1.5 to
# seven times as long as loads side by side (benchmarks/bench_kernel.py, list).
in_order = _compile(fastmath={"contract"})
in_order_part = _compile(fastmath={"contract"}, no_cpython_wrapper=True)
exact = _compile()  # where the answer is yes or no: no sum may be reordered
# A part whose body the compiler puts into every loop that calls it, so that the loop is still vectorised. It is
# compiled once; the body of an inlined function is compiled with each function that calls it.
kernel_step = _compile(fastmath=SUMS, no_cpython_wrapper=True, forceinline=True)
inlined = nb.njit(inline="always", fastmath=SUMS, error_model="numpy")
