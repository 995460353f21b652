"""The emitter: settings, site and kind in, nginx.conf text out."""
