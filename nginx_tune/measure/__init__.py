"""Load plans, the probe that runs them, and the statistics of what it measured."""
