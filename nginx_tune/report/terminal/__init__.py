"""The terminal: screens, a live view, progress, and destinations of output."""
