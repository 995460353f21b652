"""Changing the operator's own nginx, or putting every byte back."""
