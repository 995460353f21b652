"""What a running nginx and its kernel say."""
