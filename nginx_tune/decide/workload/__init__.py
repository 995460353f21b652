"""What is served and asked for: dataset scans and declared profiles."""
