"""Documents as one HTML page."""
