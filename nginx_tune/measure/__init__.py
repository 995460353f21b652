"""Runs load plans and arms; yields measurements."""
