"""The causes that a window over a server shows. Their pages are the TOML files in here."""
