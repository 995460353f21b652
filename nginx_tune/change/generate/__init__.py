"""The one emitter: settings, site and kind in, the text of an nginx.conf out."""

from __future__ import annotations

from nginx_tune.change.generate.nginx_conf import emit_decided, emit_nginx_conf, emit_plain

__all__ = ["emit_decided", "emit_nginx_conf", "emit_plain"]
