"""Live streams of nginx-rtmp-module, which are known to the worker that they came to alone."""

from __future__ import annotations

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.tree import ConfTree


def streams_of_one_worker(tree: ConfTree) -> Directive | None:
    """The ``rtmp`` block whose players must be on the publisher's worker; null for none.

    Source: nginx-rtmp-module, ngx_rtmp_auto_push_module.c: ``rtmp_auto_push on`` in main passes
            each stream on to the other workers; it is off by default.
    """
    push = tree.main.first("rtmp_auto_push")
    if push is not None and push.value.lower() == "on":
        return None
    return tree.main.first("rtmp")
