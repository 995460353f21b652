"""The nginx program: the binary and a running instance."""
