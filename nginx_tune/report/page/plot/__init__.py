"""Plots of a page: the places of their parts, in percent."""
