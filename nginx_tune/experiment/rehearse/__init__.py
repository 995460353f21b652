"""A change of a running nginx, rehearsed in the sandbox."""
