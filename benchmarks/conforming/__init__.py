"""The conformance tests of the load probe by subject; ``conformance.py`` runs them."""
