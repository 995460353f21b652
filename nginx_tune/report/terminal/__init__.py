"""What a terminal shows: screens, a live view, progress, and where output goes."""
