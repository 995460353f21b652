"""Which nginx is meant: the packaged one."""

from __future__ import annotations

from packaged_nginx import packaged_for

_packaged_nginx = packaged_for("REHEARSE")
