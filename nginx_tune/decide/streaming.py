"""``streaming``: streams of events (notifications, tokens of a model) passed on as they come.

Somebody must tell of them: the site (``[site] streams``), a configuration whose locations say so
(their path, ``Accept: text/event-stream``, ``X-Accel-Buffering``), or a log with such a location.
A buffered answer is passed on when a buffer is full or the answer ends: asked for in HTTP/1.0,
which was nginx's default up to 1.29.6, that is after sixteen events of 256 bytes; gzip of
``text/event-stream`` holds events longer still (``benchmarks/scenarios/event-stream.toml``).
``proxy_buffering off`` in the location of the stream passes on each read, whatever the server
answers with, and has gzip flush it. In HTTP/1.1 a server that answers in chunks needs none of it,
nor one that says ``X-Accel-Buffering: no``.

nginx gives up on a stream that says nothing for ``proxy_read_timeout`` (60 s). How long one is
silent only its maker knows: where the site says so (``stream_silence_seconds``) there is room for
twice that.
"""

from __future__ import annotations

import math
from typing import Final

from nginx_tune.conf.event_streams import is_stream_path
from nginx_tune.decide.answer import not_applicable, setting
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Setting

ID: Final = "streaming"
WATCH_COMMAND: Final = "nginx-tune probe http://127.0.0.1/STREAM --event-stream --allow-live"
_READ_TIMEOUT_SECONDS = 60
"""``proxy_read_timeout``. Source: ngx_http_proxy_merge_loc_conf."""
_MOST_SECONDS = 86_400
_ROOM = 2.0
"""Over the longest silence: a heartbeat may come late."""


def decide_streaming(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    evidence = _told(s)
    if not evidence:
        return not_applicable(
            ID,
            "Nothing tells of streams of events.",
            flips="[site] streams names the locations that they have",
        )
    if s.kind in ("static", "media") and not s.site.upstreams:
        return not_applicable(
            ID,
            "Nothing is fetched from an upstream that could stream.",
            evidence=evidence,
            flips="the site has an upstream",
        )
    locations = list(dict.fromkeys(str(one.value) for one in evidence))
    silence = s.site.stream_silence_seconds
    said = ", ".join(locations)
    risks = [
        "limit_rate does nothing there, and a slow client holds its upstream's connection",
    ]
    if silence is None:
        risks.append(
            f"a stream that says nothing for {_READ_TIMEOUT_SECONDS} s is cut "
            "(proxy_read_timeout): send heartbeats, or say [site] stream_silence_seconds"
        )
    return Decision(
        id=ID,
        verdict="set",
        summary=f"Not buffered: {said}; an event is passed on when it comes.",
        settings=[line for location in locations for line in _lines(s, location, silence)],
        evidence=[
            *evidence,
            *(
                [
                    Evidence(
                        fact="site.stream_silence_seconds",
                        value=silence,
                        unit="s",
                        provenance="declared",
                    )
                ]
                if silence is not None
                else []
            ),
        ],
        confidence="medium",
        flips_when=["its server answers in chunks or says X-Accel-Buffering: no itself"],
        risks=risks,
        next_command=WATCH_COMMAND,
    )


def _told(s: Situation) -> list[Evidence]:
    """The locations of streams, each with who told of it."""
    found = [
        Evidence(fact="site.streams", value=one, provenance="declared") for one in s.site.streams
    ]
    learnt = s.workload.traffic.locations if s.workload.traffic else []
    return found + [
        Evidence(fact="workload.traffic.locations", value=one.location, provenance="learnt")
        for one in learnt
        if one.location.startswith("/")
        and is_stream_path(one.location)
        and one.location not in s.site.streams
    ]


def _lines(s: Situation, location: str, silence: float | None) -> list[Setting]:
    why = "events are passed on as they come, whatever their server answers with"
    found = [setting(ID, "location", "proxy_buffering", "off", reason=why, block=location)]
    if s.kind == "cache":
        why = "no stream is an object that could be kept for others"
        found.append(setting(ID, "location", "proxy_cache", "off", reason=why, block=location))
    if silence is not None and silence * _ROOM > _READ_TIMEOUT_SECONDS:
        seconds = math.ceil(min(_MOST_SECONDS, silence * _ROOM))
        said = f"for {silence:g} s" if silence < _MOST_SECONDS else "for as long as it likes"
        why = f"a stream may say nothing {said}"
        timeout = f"{seconds}s"
        found.append(
            setting(ID, "location", "proxy_read_timeout", timeout, reason=why, block=location)
        )
    return found
