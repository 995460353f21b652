"""A name for what all of this machine sees: cgroups, devices, files outside of the test's own."""

import os
from pathlib import Path


def own_name() -> str:
    """That of this process, unlike every other's: process numbers are a namespace's own."""
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{os.getpid()}"
