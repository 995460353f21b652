"""The terminal: screens, a live view, progress, and where output goes."""
