"""From two configurations to an experiment and its validation."""
