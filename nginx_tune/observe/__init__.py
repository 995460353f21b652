"""The observation of a running nginx: what it and its kernel say."""
