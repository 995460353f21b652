"""The parts of ``apply_kills.py``."""
