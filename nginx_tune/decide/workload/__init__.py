"""The workload: learnt from access logs, or assumed by the kind of site."""
