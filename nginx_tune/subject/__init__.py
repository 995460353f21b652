"""Which configuration is meant, and what of it a file in its place must keep."""
