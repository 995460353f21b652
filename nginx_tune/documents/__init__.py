"""The typed documents that pass between all packages; imports only ``errors``."""
