"""Documents to console and JSON."""
