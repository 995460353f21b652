"""A window over a running server: the combined counts of the server and its kernel."""
