"""Scenario files: their experiments, claims and predictions."""
