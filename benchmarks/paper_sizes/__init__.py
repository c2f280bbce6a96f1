"""The paper's three data sets at their full size, as look-alikes: text, conversion, the path of twenty λ, evaluation.

    python -m benchmarks.paper_sizes --name epsilon --scale 0.01 --folder paper/epsilon
    python -m benchmarks.paper_sizes growth --name epsilon --scales 0.01,0.03,0.1

Each stage runs the command that a user would, and is recorded with its seconds, peak memory and disk in record.json of
the folder. A stage that is finished is not done again; one that was cut off goes on where it was.
"""
