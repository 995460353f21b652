"""The advice that is copied, as configurations, cells and a page."""
