"""The driver on the cluster: submitting it, following it from a terminal, finding and cancelling it."""
