"""A change to a running nginx, rehearsed in the sandbox."""
