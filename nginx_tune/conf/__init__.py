"""nginx configuration: parse, include trees, effective values."""
