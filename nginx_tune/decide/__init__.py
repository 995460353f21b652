"""Facts and a workload in, decisions out; pure."""
