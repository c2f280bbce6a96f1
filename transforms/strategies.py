"""How features go to partitions, by name. Apart from assign.py, which does it: --help need not wait for numba."""

STRATEGIES = ("spread", "neighbours")
