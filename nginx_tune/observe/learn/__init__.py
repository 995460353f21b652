"""Learning a workload from access logs."""
