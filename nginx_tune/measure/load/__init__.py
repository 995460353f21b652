"""Load plans and the probe that runs them."""
