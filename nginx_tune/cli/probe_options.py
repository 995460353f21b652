"""The options of ``probe`` that make a load of one URL, and the load that they make."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nginx_tune.cli.numbers import DURATION, Duration, FiniteNumber, Whole
from nginx_tune.cli.options import option_group, parse_duration
from nginx_tune.cli.probe_transport import TRANSPORT_OPTIONS, resolve_place
from nginx_tune.errors import UsageError

if TYPE_CHECKING:
    from nginx_tune.documents.loadplan import EventStream, LoadPlan, Paths


_OPTIONS = [
    click.option(
        "--connections",
        type=Whole(1, 100_000),
        metavar="N",
        help="Closed loop: N users, each with a connection of its own and the next request after "
        "the last (default 10). With --rate: N connections held open and used in turn.",
    ),
    click.option(
        "--rate",
        metavar="R",
        help="Open loop: R requests a second, whether the server keeps up or not. 100,200,400: "
        "equal steps; 100-500: growing evenly.",
    ),
    click.option(
        "--arrivals",
        type=click.Choice(["poisson", "constant"]),
        default="poisson",
        help="Of an open loop: at random (default) or evenly.",
    ),
    click.option(
        "--max-connections",
        type=Whole(1, 100_000),
        metavar="N",
        help="Open loop: one more connection is opened when all are busy, up to N (default 1000, "
        "or as many as are held); then arrivals wait, with their intended time.",
    ),
    click.option(
        "--http2",
        is_flag=True,
        help="Speak HTTP/2: over TLS by ALPN, else at once. Connections (closed loop 10, with "
        "--rate 32) are held, and users stay with theirs.",
    ),
    click.option(
        "--http3",
        is_flag=True,
        help="Speak HTTP/3: QUIC over UDP, to the same port. The rest is as with --http2.",
    ),
    click.option(
        "--streams",
        type=Whole(1, 10_000),
        metavar="M",
        help="HTTP/2, HTTP/3: at most M requests at once on a connection (100; fewer where the "
        "server wants fewer). Closed loop: M users on each (10).",
    ),
    click.option(
        "--event-stream",
        is_flag=True,
        help="Watch answers while they come (events, long polls, tokens): time to the body, gaps, "
        "early ends. --timeout is then of the first byte of the body; at the end of the measured "
        "time the probe cuts off what is under way.",
    ),
    click.option(
        "--stamp",
        metavar="TEXT",
        help="Of --event-stream: TEXT stands before the time at which an event was sent, in "
        "nanoseconds of this host's CLOCK_MONOTONIC; measures each event's delay.",
    ),
    click.option(
        "--stream-end",
        metavar="TEXT",
        help="Of --event-stream: every whole stream has TEXT at its end, such as [DONE].",
    ),
    click.option(
        "--think", type=DURATION, metavar="TIME", help="Closed loop: pause after each response."
    ),
    click.option(
        "--duration",
        default="10s",
        show_default=True,
        type=DURATION,
        metavar="TIME",
        help="Measured.",
    ),
    click.option(
        "--warmup",
        default="1s",
        show_default=True,
        type=Duration("0", "0s"),
        metavar="TIME",
        help="Before it; 0 for none.",
    ),
    click.option(
        "--timeout",
        default="30s",
        show_default=True,
        type=DURATION,
        metavar="TIME",
        help="Of a request.",
    ),
    click.option("-I", "--head", is_flag=True, help="Ask by HEAD."),
    click.option(
        "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="May repeat."
    ),
    click.option("--status", default="200", show_default=True, help="Expected; 200,304 for more."),
    click.option(
        "--keepalive",
        default="on",
        show_default=True,
        metavar="on|off|N|1/N",
        help="Requests per connection: any number, one, N, or closed with probability 1/N.",
    ),
    click.option(
        "--range", "byte_range", metavar="A-B|random:SIZE", help="Part of the object to ask for."
    ),
    click.option(
        "--paths-from",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Ask for the paths of a list (one a line) or a manifest, not for the URL's own.",
    ),
    click.option(
        "--pick",
        type=click.Choice(["uniform", "zipf", "once"]),
        help="From a list: all alike (default), by popularity, or each once and over again.",
    ),
    click.option("--zipf", type=FiniteNumber(0, 20), metavar="S", help="Exponent (1)."),
    click.option("--replay", is_flag=True, help="Ask when the manifest's requests were recorded."),
    click.option("--speed", type=FiniteNumber(0.001, 1000), metavar="X", help="Of a replay (1)."),
    click.option(
        "--document-root",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Compare lengths, and some bodies, with the files below DIR.",
    ),
    click.option(
        "--slow-read",
        metavar="SIZE",
        help="Slow clients: read at most SIZE bytes a second from a connection (HTTP/2: of a "
        "stream).",
    ),
    click.option(
        "--slow-read-of",
        type=click.Choice(["stream", "connection"]),
        default="stream",
        show_default=True,
        help="HTTP/2: what --slow-read is the pace of.",
    ),
    click.option(
        "--priority",
        metavar="WORDS",
        help="How urgent the answers are: weight=1…256 of each stream (HTTP/2), u=0…7 and i in "
        "the header priority, with commas between: weight=220,u=1,i.",
    ),
    click.option(
        "--idle-connections",
        type=Whole(0, 1_000_000),
        default=0,
        metavar="N",
        help="Hold N more connections open that ask nothing.",
    ),
    click.option(
        "--new-connections",
        type=FiniteNumber(min=0, min_open=True),
        metavar="R",
        help="Besides, R requests a second each on a new connection (class 'connect').",
    ),
    *TRANSPORT_OPTIONS,
    click.option(
        "--threads",
        type=Whole(1, 256),
        metavar="N",
        help="Threads side by side on one schedule (default by the rate, and half of the CPUs at "
        "most).",
    ),
    click.option(
        "--precise",
        is_flag=True,
        help="Spin, not sleep, just before an arrival is due; takes a free CPU.",
    ),
    click.option(
        "--seed", default=1, show_default=True, type=Whole(min=0), help="Of all that is drawn."
    ),
]


url_options = option_group(_OPTIONS)
"""The command with the options that make a load of one URL."""


def given_options(ctx: click.Context) -> dict[str, str]:
    """Those of these options that the caller gave: parameter and word."""
    own = url_options(click.command()(lambda: None))
    return {
        parameter.name: parameter.opts[-1]
        for parameter in own.params
        if ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    }


def plan_of(
    url: str, options: Mapping[str, Any], *, stripe: str | None, start_at: str | None
) -> LoadPlan:
    """The load plan of a URL and these options.

    Errors: UsageError that names the option.
    """
    from nginx_tune.cli import probe_words as words  # noqa: PLC0415  # heavy imports stay here
    from nginx_tune.documents.loadplan import Stripe  # noqa: PLC0415
    from nginx_tune.measure.load.one_class import (  # noqa: PLC0415
        OPEN_LOOP_CONNECTIONS,
        Load,
        default_threads,
        plan_load,
    )

    if options["think"] is not None and (options["rate"] is not None or options["replay"]):
        raise UsageError("--think is for a closed loop")
    place = resolve_place(url, options)
    asked, recorded_seconds = _asked(place.path, options)
    slow = options["slow_read"]
    speed = (options["speed"] or 1.0) if options["replay"] else None
    duration = parse_duration(options["duration"])
    if recorded_seconds is not None and speed is not None and not options["duration_given"]:
        duration = recorded_seconds / speed
    rate = None if options["rate"] is None else words.parse_rate(options["rate"])
    most = options["connections"] or options["max_connections"] or OPEN_LOOP_CONNECTIONS
    cpus = len(os.sched_getaffinity(0))
    threads = options["threads"] or default_threads(rate, most, cpus)
    load = Load(
        http2=options["http2"],
        http3=options["http3"],
        streams=options["streams"],
        connections=options["connections"],
        think_seconds=None if options["think"] is None else parse_duration(options["think"]),
        rate=rate,
        gaps=options["arrivals"],
        replay_speed=speed,
        most_connections=options["max_connections"],
        asked=asked,
        method="HEAD" if options["head"] else "GET",
        headers=words.parse_headers(options["headers"]),
        status=words.parse_statuses(options["status"]),
        timeout_seconds=parse_duration(options["timeout"]),
        keepalive=words.parse_keepalive(options["keepalive"]),
        range=None if options["byte_range"] is None else words.parse_range(options["byte_range"]),
        read_bytes_per_second=None if slow is None else words.parse_bytes(slow, "--slow-read"),
        read_pace_of=options["slow_read_of"],
        priority=None if options["priority"] is None else words.parse_priority(options["priority"]),
        event_stream=_event_stream(options),
        idle_connections=options["idle_connections"],
        new_connections_per_second=options["new_connections"],
        duration_seconds=duration,
        warmup_seconds=_warmup(options, replays=speed is not None),
        threads=threads,
        precise=options["precise"],
        seed=options["seed"],
        stripe=Stripe() if stripe is None else words.parse_stripe(stripe),
        start_at_unix_seconds=None if start_at is None else words.parse_moment(start_at),
    )
    return plan_load(place.target, place.path, load)


def _event_stream(options: Mapping[str, Any]) -> EventStream | None:
    from nginx_tune.documents.loadplan import EventStream  # noqa: PLC0415

    stamp, end = options["stamp"], options["stream_end"]
    if not options["event_stream"]:
        if stamp is not None or end is not None:
            raise UsageError("--stamp and --stream-end go with --event-stream")
        return None
    for given, option in (
        (options["head"], "--head"),
        (options["slow_read"] is not None, "--slow-read"),
        (options["byte_range"] is not None, "--range"),
    ):
        if given:
            raise UsageError(f"{option} does not go with --event-stream")
    if "" in (stamp, end) or (stamp is not None and stamp[-1].isdigit()):
        raise UsageError("--stamp and --stream-end: a text; the stamp's last character no digit")
    return EventStream(stamp=stamp, end=end)


def _warmup(options: Mapping[str, Any], *, replays: bool) -> float:
    """A recording is measured from its first request on, unless told otherwise."""
    if options["warmup"] in ("0", "0s") or (replays and not options["warmup_given"]):
        return 0.0
    return parse_duration(options["warmup"])


def _asked(path: str, options: Mapping[str, Any]) -> tuple[Paths, float | None]:
    """What is asked for, and how long a manifest's recording is."""
    from nginx_tune.documents.loadplan import Paths  # noqa: PLC0415
    from nginx_tune.measure.load.asked_paths import (  # noqa: PLC0415
        find_files,
        read_manifest_head,
        read_paths,
    )

    source, root = options["paths_from"], options["document_root"]
    head = None if source is None else read_manifest_head(source)
    if head is not None:
        if options["pick"] or options["zipf"] is not None or root is not None:
            raise UsageError("--pick, --zipf and --document-root go with a list, not a manifest")
        seconds = head.get("duration_seconds")
        recorded = Paths(kind="manifest", manifest=str(source))
        return recorded, seconds if isinstance(seconds, (int, float)) else None
    if options["replay"] or options["speed"] is not None:
        raise UsageError("--replay and --speed go with a manifest", hint="--paths-from MANIFEST")
    if source is None and (options["pick"] or options["zipf"] is not None):
        raise UsageError("--pick and --zipf go with --paths-from")
    if options["zipf"] is not None and options["pick"] not in (None, "zipf"):
        raise UsageError("--zipf goes with --pick zipf")
    paths = [path] if source is None else read_paths(source)
    sizes, files = (None, None) if root is None else find_files(root, paths)
    kind: Literal["fixed", "uniform", "zipf", "once"] = "fixed"
    if source is not None:
        kind = options["pick"] or ("uniform" if options["zipf"] is None else "zipf")
    exponent = (options["zipf"] or 1.0) if kind == "zipf" else None
    return Paths(kind=kind, paths=paths, exponent=exponent, bytes=sizes, files=files), None
