"""Changes of a configuration: planned, generated, applied."""
