"""Settings with their reasons to nginx.conf, through one emitter."""
