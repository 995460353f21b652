"""Decisions with evidence, made of facts, a workload and a site; pure."""
