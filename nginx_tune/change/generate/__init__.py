"""The one emitter: settings, site and kind in, the text of an nginx.conf out."""
