"""Statistics, gates and verdicts; pure."""
