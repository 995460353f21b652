"""What a window over a server shows, named; the TOML files beside are the pages of the causes."""
