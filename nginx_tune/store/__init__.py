"""Results that are kept on this machine."""
