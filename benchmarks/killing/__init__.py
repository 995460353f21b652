"""What ``apply_kills.py`` is made of."""
