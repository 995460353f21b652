"""Comparison of decisions with an existing configuration, and the resulting changes; pure."""
