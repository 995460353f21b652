"""The nginx program: its binary and its running instances."""
