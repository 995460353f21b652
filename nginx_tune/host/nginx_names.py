"""What nginx and its forks are called."""

from __future__ import annotations

NAMES = ("nginx", "angie", "openresty", "freenginx", "tengine")
"""Programs, in the order they are looked for."""

COMMS = ("nginx", "angie", "openresty", "freenginx", "tengine")
"""Processes, in ``/proc/PID/comm``."""
