"""Estimators that follow scikit-learn's rules."""
