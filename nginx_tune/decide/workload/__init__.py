"""The workload, what is asked for: learnt from access logs, or assumed by the kind of site."""
