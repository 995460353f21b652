"""Where the parts of a plot lie, in percent."""
