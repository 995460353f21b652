"""What nginx and its host do under load, as formulas with their sources; pure."""
