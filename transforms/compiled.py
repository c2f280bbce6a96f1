"""The decorators of the kernels that read and order data.

numba compiles a kernel again when its own file has changed, so what a kernel calls stands in the kernel's file.
"""

from __future__ import annotations

from numba import njit

# What Python calls. Nobody calls kernels by a C function pointer.
kernel = njit(nogil=True, cache=True, no_cfunc_wrapper=True)
# A part of kernels. It cannot be called from Python: what takes Python's objects apart takes as long to compile as a
# small function itself.
part = njit(nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True)
# A part whose body the compiler puts wherever it is called. It is compiled once, where numba's own way of inlining
# compiles the body with each function that calls it.
step = njit(nogil=True, no_cfunc_wrapper=True, no_cpython_wrapper=True, forceinline=True)
