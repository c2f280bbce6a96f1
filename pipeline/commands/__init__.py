"""The commands, a file for each; submit.py lists those of dask-submit, shared.py has what they have in common."""
