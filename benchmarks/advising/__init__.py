"""Tuning advice that is copied from text to text, as configurations, cells and a page."""
