"""Worker generations: which one serves, which is leaving, and which answers."""
