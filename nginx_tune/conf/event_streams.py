"""What in a configuration says that a stream of events is passed on."""

from __future__ import annotations

import re

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.media_types import EVENT_STREAM
from nginx_tune.conf.scopes import Scope
from nginx_tune.conf.upstreams import sent_header

ASKED_OFF = "x-accel-buffering"
_PATH = re.compile(
    r"(^|/)(sse|event[-_]?stream|eventsource)(/|$)|(^|/)chat/completions(/|$)", re.IGNORECASE
)
"""What nobody calls anything else."""


def is_stream_path(path: str) -> bool:
    """Whether the path of a location says that events are streamed there."""
    return _PATH.search(path) is not None


def stream_sign(scope: Scope) -> Directive | None:
    """What says that a stream of events is passed on by ``proxy_pass`` here."""
    accept = sent_header(scope, "proxy", "accept")
    if accept is not None and accept.args[1].lower() == EVENT_STREAM:
        return accept
    sent = sent_header(scope, "proxy", ASKED_OFF)
    for line in [*([sent] if sent else []), *scope.effective_all("add_header")]:
        if [word.lower() for word in line.args[:2]] == [ASKED_OFF, "no"]:
            return line
    places = [level for level in scope.chain if level.name == "location" and level.args]
    return next((place for place in places if is_stream_path(place.args[-1])), None)
