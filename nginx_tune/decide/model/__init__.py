"""The behaviour of nginx and its host under load, as formulas with their sources; pure."""
