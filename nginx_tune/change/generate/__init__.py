"""The generator: takes settings, a site and its kind, and returns the text of nginx.conf."""
