"""Soak: the whole program for minutes or hours on a real cluster that is disturbed all the time.

    python -m benchmarks.soak --minutes 30 --seed 1

Convert, fit by both algorithms, evaluate and predict in turns, while workers are killed and stopped, bits are flipped
in stored files, bad lines stand among good ones, and a store fails a quarter of its requests. Every result must equal
that of an undisturbed run; damage must be refused with exit code 2 and the file's name. Memory, threads and file
descriptors of driver and workers must not grow. Exit code 1 if anything was otherwise.
"""
