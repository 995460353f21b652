"""Rules over configuration, host, build and version; pure."""
