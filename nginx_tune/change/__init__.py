"""Changes to a configuration: planned, generated, applied."""
