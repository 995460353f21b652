"""Looking at a host: facts, disks, what can be measured there."""
