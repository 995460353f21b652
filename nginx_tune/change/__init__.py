"""Changes to a configuration: plans, generated files, and their installation on a running nginx."""
