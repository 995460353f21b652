"""The inspection of a host: its facts, its disks, and what can be measured there."""
