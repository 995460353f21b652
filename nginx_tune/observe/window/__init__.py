"""A window over a running server: what it and its kernel counted, put together."""
