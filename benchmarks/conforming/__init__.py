"""The conformance tests of the load probe, by what they are about; run by ``conformance.py``."""
