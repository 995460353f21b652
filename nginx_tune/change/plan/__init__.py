"""Decisions held against a configuration that stands, and as changes of it; pure."""
