"""Which nginx is meant: the packaged one."""

from packaged_nginx import packaged_for

_packaged_nginx = packaged_for("VALIDATE")
