"""Options from a YAML file and from Dask's configuration, checked against the commands themselves."""
