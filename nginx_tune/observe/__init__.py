"""The observation of a running nginx: what nginx and the kernel report."""
