"""The options of ``probe`` that say how the server is reached: TLS, socket, PROXY protocol."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from nginx_tune.errors import UsageError

if TYPE_CHECKING:
    from nginx_tune.documents.loadplan import ProxyProtocol, Tls
    from nginx_tune.measure.load.target import ResolvedUrl

TlsVersion = Literal["1.2", "1.3"]

_VERSIONS: dict[str, TlsVersion] = {"1.2": "1.2", "1.3": "1.3"}

TRANSPORT_OPTIONS: list[Callable[..., Any]] = [
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
]


def resolve_place(url: str, options: Mapping[str, Any]) -> ResolvedUrl:
    """What a URL and these options say of the server, and the path that is asked.

    Errors: UsageError that names the option.
    """
    import msgspec  # noqa: PLC0415  # heavy imports stay here

    from nginx_tune.measure.load.target import resolve_url  # noqa: PLC0415

    tls = _tls(options)
    if not url.startswith("https://"):
        for name, option in _TLS_OPTIONS.items():
            if options[name]:
                raise UsageError(f"{option} is for a URL that begins with https://")
    said_first = _proxy_protocol(options)
    place = resolve_url(url, tls, unix=options["unix_path"])
    target = msgspec.structs.replace(place.target, proxy_protocol=said_first)
    return place._replace(target=target)


_TLS_OPTIONS = {
    "server_name": "--server-name",
    "tls_min": "--tls-min",
    "tls_max": "--tls-max",
    "ciphers": "--ciphers",
    "certificate_file": "--cert",
    "key_file": "--key",
}
"""They would have no effect without TLS; ``-k`` and its like may stand in a habit."""


def _tls(options: Mapping[str, Any]) -> Tls:
    from nginx_tune.documents.loadplan import Tls  # noqa: PLC0415

    oldest = _version(options["tls_min"], "--tls-min") or "1.2"
    newest = _version(options["tls_max"], "--tls-max") or "1.3"
    if oldest > newest:
        raise UsageError(f"--tls-min {oldest} is above --tls-max {newest}")
    certificate, key = options["certificate_file"], options["key_file"]
    if key is not None and certificate is None:
        raise UsageError("--key goes with --cert")
    listed = (options["ciphers"] or "").replace(",", ":").split(":")
    return Tls(
        verify=not options["insecure"],
        ca_file=options["ca_file"],
        server_name=options["server_name"],
        resumption=not options["no_resumption"],
        min_version=oldest,
        max_version=newest,
        ciphers=[name.strip() for name in listed if name.strip()],
        certificate_file=certificate,
        key_file=key or certificate,
    )


def _version(text: str | None, option: str) -> TlsVersion | None:
    if text is None:
        return None
    version = _VERSIONS.get(text.lower().removeprefix("tls").removeprefix("v"))
    if version is None:
        raise UsageError(
            f"{option} '{text}': the probe speaks TLS 1.2 and 1.3",
            hint="its library, rustls, has no older ones; openssl s_client has",
        )
    return version


def _proxy_protocol(options: Mapping[str, Any]) -> ProxyProtocol | None:
    from nginx_tune.documents.loadplan import ProxyProtocol  # noqa: PLC0415

    source = options["proxy_source"]
    if options["proxy_protocol"] is None:
        if source is not None:
            raise UsageError("--proxy-source goes with --proxy-protocol")
        return None
    if source is not None:
        try:
            source = str(ipaddress.ip_address(source))
        except ValueError:
            raise UsageError(f"--proxy-source '{source}' is no IP address") from None
    return ProxyProtocol(version=1 if options["proxy_protocol"] == "v1" else 2, source=source)
