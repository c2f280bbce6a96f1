"""Numba kernels: everything that runs over nonzeros or coefficients. Plain arrays in and out, GIL released.

    compiled    the decorators, and a cache on disk that notices a change in any file of this folder
    vectors     sums of vectors over examples
    penalty     the soft threshold, the penalty's value, its values along a ray
    columns     products with columns: Xᵀr, Σ w x², Xd
    descent     coordinate descent: the paper's cycle, cycles over a working set, cycles on a Gram matrix
    screening   which features can matter, and which violate
The kernels over examples that know the loss are in solver/losses.
"""
