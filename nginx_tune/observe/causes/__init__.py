"""The causes that a window over a server shows; their pages are the TOML files beside."""
