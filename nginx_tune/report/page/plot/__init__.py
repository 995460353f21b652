"""The plots of a page, with the positions of their parts in percent."""
