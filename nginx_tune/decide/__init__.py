"""Decisions with evidence, from facts, a workload and a site; pure."""
