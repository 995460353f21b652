"""The options of ``probe`` that make a load of one URL, and say how its server is reached."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nginx_tune.cli.options import (
    DURATION,
    Duration,
    FiniteNumber,
    Whole,
    option_group,
)

if TYPE_CHECKING:
    pass


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
    click.option(
        "-k",
        "--insecure",
        is_flag=True,
        help="Take any certificate of an https server, as curl does.",
    ),
    click.option(
        "--cacert",
        "ca_file",
        type=click.Path(dir_okay=False, resolve_path=True),
        metavar="FILE",
        help="Trust the authorities in this PEM file, not the system's.",
    ),
    click.option(
        "--server-name",
        metavar="NAME",
        help="Of the TLS handshake and the certificate (SNI), in the place of the URL's host.",
    ),
    click.option(
        "--no-sessionid",
        "no_resumption",
        is_flag=True,
        help="Make every TLS handshake a full one; none takes up an earlier session.",
    ),
    click.option("--tls-min", metavar="1.2|1.3", help="The oldest TLS that is offered (1.2)."),
    click.option("--tls-max", metavar="1.2|1.3", help="The newest TLS that is offered (1.3)."),
    click.option(
        "--ciphers",
        metavar="LIST",
        help="Cipher suites that are offered, the best first, by OpenSSL's or IANA's names with "
        "colons or commas between.",
    ),
    click.option(
        "--cert",
        "certificate_file",
        type=click.Path(dir_okay=False, resolve_path=True),
        metavar="FILE",
        help="Show the client certificate in this PEM file (mTLS).",
    ),
    click.option(
        "--key",
        "key_file",
        type=click.Path(dir_okay=False, resolve_path=True),
        metavar="FILE",
        help="Its private key (PEM, without a password); in the file of --cert unless told.",
    ),
    click.option(
        "--unix",
        "unix_path",
        type=click.Path(dir_okay=False, resolve_path=True),
        metavar="PATH",
        help="Connect to this unix socket; the URL says Host and path. As well: "
        "http://unix:/run/x.sock:/path.",
    ),
    click.option(
        "--proxy-protocol",
        type=click.Choice(["v1", "v2"]),
        help="Begin each connection with a header of the PROXY protocol, as a balancer does.",
    ),
    click.option(
        "--proxy-source",
        metavar="ADDRESS",
        help="The client's address in that header (the connection's own).",
    ),
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
