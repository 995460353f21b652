"""Experiments: variants, their loads, and the sandboxed runs that a verdict rests on."""
