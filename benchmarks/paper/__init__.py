"""The paper's experiment (sections 4.1 to 4.4): d-GLMNET against distributed online learning, Figure 1 and Table 3.

    python -m benchmarks.paper                         quick: generated look-alikes, minutes
    python -m benchmarks.paper --full --data DIR       the paper's grid on NAME.train.svm and NAME.test.svm, hours

d-GLMNET in paper mode, and in default mode beside it, over λmax·2^-1 … λmax·2^-20; truncated gradient over the same λ ×
learning rates × decays × passes, β kept after each pass; the real Vowpal Wabbit beside it. AUPRC on the test set and
nonzeros of all of them. What is done is kept in the output folder and not done again: an experiment that was stopped
goes on where it was.
"""
