"""From a scenario's file to an experiment, its claims and predictions."""
