"""The causes that a window over a server shows. The TOML files here are their pages."""
