"""One file per command: parse, call, print; no logic."""
