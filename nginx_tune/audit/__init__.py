"""Rules that judge a configuration with its host, build and version. No I/O."""
