"""Text of an nginx.conf: quoted values, settings as lines, the header of the file.

Every value goes through ``quote``. nginx's tokenizer ends a bare word at white space, ``;`` and
``{``, and recognizes quotes only at the start of a word. Inside double quotes, a backslash escapes
``"`` and itself. Nothing escapes ``$``, which most directives interpolate, quoted or not. So a
value from outside must not contain ``$``; only words from a fixed list of this program may. Words
of a site that nginx would misread are refused as well.

Source: ngx_conf_read_token() in src/core/ngx_conf_file.c; ngx_http_compile_complex_value().
"""

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address

from nginx_tune import __version__
from nginx_tune.conf.listeners import SocketName, socket_name
from nginx_tune.conf.second_reader import spelled
from nginx_tune.conf.served import why_no_place
from nginx_tune.documents.base import Document, encode
from nginx_tune.documents.decisions import DirectiveContext, Setting
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import GZIP_LINE, Site, Upstream
from nginx_tune.documents.workload import Kind, Workload
from nginx_tune.errors import UsageError

MOST_BYTES = 1024
"""Longest value in bytes, since a word must fit into the 4096-byte buffer that nginx reads
through."""
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,=~^*!?&|<>()\[\]-]+", re.ASCII)
_OWN_VARIABLES = re.compile(
    r"(?:\$(?:request_uri|uri|disk|host|scheme|pid|connection|http_authorization|http_upgrade"
    r"|connection_upgrade|http_accept_encoding|encoding))+"
    r"|\$scheme\|\$server_name:\$server_port\|\$host\|\$http_host\|\$http_x_forwarded_proto"
    r"\|\$http_x_forwarded_host\|\$proxy_host\|\$uri\$is_args\$args\|\$request_uri"
    r"\|\$http_accept_encoding"
    r"|\$scheme\$host(?:\|\$http_host\|\$server_port)?\$request_uri"
    r"(?:\|\$(?:http_accept_|)encoding)?"
    r"|(?:threads=pool_|cache_)\$disk",
    re.ASCII,
)


class Written(str):
    """Text in nginx syntax, from ``quote`` or ``comment``."""

    __slots__ = ()


_IS_SPELLED = ContextVar("is_spelled", default=False)


@contextmanager
def spelled_out() -> Iterator[None]:
    """Within this context, write every value in hexadecimal, for ``conf.second_reader``."""
    token = _IS_SPELLED.set(True)
    try:
        yield
    finally:
        _IS_SPELLED.reset(token)


def quote(value: str, *, own_words: bool = False) -> Written:
    """The value as one word of nginx's configuration language.

    ``own_words`` permits this program's own variables, such as ``threads=pool_$disk``.

    Errors: UsageError for ``$``, control characters, invalid UTF-8 and more than 1024 bytes.
    """
    if own_words and _OWN_VARIABLES.fullmatch(value):
        return Written(spelled(value) if _IS_SPELLED.get() else value)
    if "$" in value:
        raise UsageError(f"{_shown(value)}: '$' cannot be written to nginx.conf (no escape for it)")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in value):
        raise UsageError(
            f"{_shown(value)}: control characters and invalid UTF-8 cannot be written to nginx.conf"
        )
    if len(value.encode()) > MOST_BYTES:
        raise UsageError(f"{_shown(value)}: longer than {MOST_BYTES} bytes")
    if _IS_SPELLED.get():
        return Written(spelled(value))
    if _BARE.fullmatch(value):
        return Written(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return Written(f'"{escaped}"')


def comment(text: str) -> Written:
    """The text of a comment, on one line and without control characters."""
    flat = " ".join(text.encode(errors="replace").decode().split())
    return Written("".join(c if c.isprintable() else "?" for c in flat))


def finalize(value: object) -> object:
    """Quote a value that a template prints; Jinja calls this for each value."""
    if isinstance(value, Written):
        return value
    return quote(str(value))


def _shown(value: str) -> str:
    return ascii(value[:60])


_KEY_ARGUMENT = {
    "thread_pool": 0,
    "proxy_cache_path": 0,
    "split_clients": 1,
    "proxy_set_header": 0,
    "add_header": 0,
    "log_format": 0,
    "listen": 0,
}
"""Directives that may occur several times in a context, with the argument that distinguishes
them."""

_MOST_ALIGNED = 60
"""Longest line that has its comment on the right; a longer line has its comment above."""


def key_of(setting: Setting) -> tuple[str, str]:
    """The key of a setting, (directive, argument); a block has one setting for each key."""
    place = _KEY_ARGUMENT.get(setting.directive)
    if place is None or place >= len(setting.args):
        return setting.directive, ""
    word = setting.args[place]
    return setting.directive, word.partition("=")[0] if setting.directive == "listen" else word


def merge(settings: Iterable[Setting], forced: Iterable[Setting]) -> list[Setting]:
    """The settings, in which each forced setting replaces those with the same key.

    A forced setting without a block replaces the directive in every block of its context.
    """
    merged = list(settings)
    for new in forced:
        replaced = [
            index
            for index, old in enumerate(merged)
            if old.context == new.context
            and key_of(old) == key_of(new)
            and (not new.block or old.block == new.block)
        ]
        place = replaced[0] if replaced else len(merged)
        merged = [old for index, old in enumerate(merged) if index not in replaced]
        merged.insert(min(place, len(merged)), new)
    return merged


def within(
    settings: Sequence[Setting], context: DirectiveContext, block: str = ""
) -> list[Setting]:
    """The settings for one block: its own, and those of the context that it does not replace."""
    own = [s for s in settings if s.context == context and s.block == block and block]
    taken = {key_of(s) for s in own}
    general = [
        s for s in settings if s.context == context and not s.block and key_of(s) not in taken
    ]
    return [*general, *own]


def written(settings: Sequence[Setting], indent: int) -> Written:
    """The settings as lines with their reasons, in aligned comments.

    Shape: no final newline; empty if there are no settings.
    """
    margin = " " * indent
    statements = [margin + statement(s) for s in settings]
    column = max((len(s) for s in statements if len(s) <= _MOST_ALIGNED), default=0)
    lines: list[str] = []
    for setting, line in zip(settings, statements, strict=True):
        if not setting.reason:
            lines.append(line)
        elif len(line) > _MOST_ALIGNED:
            lines += [f"{margin}# {comment(setting.reason)}", line]
        else:
            lines.append(f"{line.ljust(column)}  # {comment(setting.reason)}")
        if setting.lines:
            lines += [f"{margin}    {words(line)};" for line in setting.lines]
            lines.append(margin + "}")
    return Written("\n".join(lines))


def statement(setting: Setting) -> str:
    """The directive of a setting, or the start of its block."""
    text = words([setting.directive, *setting.args])
    return f"{text} {{" if setting.lines else f"{text};"


def words(found: Sequence[str]) -> str:
    """Words in nginx syntax, quoted where necessary. Errors: UsageError (``quote``)."""
    return " ".join(quote(word, own_words=True) for word in found)


@dataclass(frozen=True)
class FileProvenance:
    """The inputs of a generated file."""

    kind: Kind
    facts: Facts
    workload: Workload | None = None
    """The workload; None if the workload of a typical site of the kind was assumed."""
    site: Site = field(default_factory=Site)
    """The site as read, without the command line's roots and cache directories."""
    roots: Sequence[str] = ()
    cache_dirs: Sequence[str] = ()
    features: Sequence[str] = ()
    described: Sequence[str] = ()
    """The words of a command line that describes the host; empty if facts were read."""


def header(provenance: FileProvenance | None) -> Written:
    """Comment lines with the command and its inputs, the same for the same inputs."""
    if provenance is None:
        return Written(f"# Made by nginx-tune {__version__}.")
    made = f"nginx.conf for the kind {provenance.kind}, made by nginx-tune {__version__}."
    if provenance.described:
        words = ["nginx-tune generate", *map(_shell_word, provenance.described)]
        lines = [made, "The same options and files give the same bytes:", f"  {' '.join(words)}"]
        return Written("\n".join(f"# {line}" for line in lines))
    inputs: list[tuple[str, str, Document]] = [("FACTS", "--facts", provenance.facts)]
    if provenance.workload is not None:
        inputs.append(("WORKLOAD", "--workload", provenance.workload))
    if provenance.site != Site():
        inputs.append(("SITE", "--site", provenance.site))
    words = ["nginx-tune generate"]
    words += [f"{option} {name}.json" for name, option, _ in inputs]
    words.append(f"--kind {provenance.kind}")
    words += [f"--root {_shell_word(path)}" for path in provenance.roots]
    words += [f"--cache-dir {_shell_word(path)}" for path in provenance.cache_dirs]
    words += [f"--with {_shell_word(feature)}" for feature in provenance.features]
    lines = [
        made,
        "The same inputs give the same bytes:",
        f"  {' '.join(words)}",
        "with these documents, as nginx-tune writes them:",
        *[f"  {name}.json  sha256:{digest(document)}" for name, _, document in inputs],
    ]
    return Written("\n".join(f"# {line}" for line in lines))


def _shell_word(path: str) -> str:
    """The path as one printable shell word, with hexadecimal escapes.

    Source: POSIX.1-2024, XCU 2.2.4, dollar-single-quotes.
    """
    if path.isprintable():
        return shlex.quote(path)
    return "$'" + "".join(_shell_character(character) for character in path) + "'"


def _shell_character(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def digest(document: Document) -> str:
    """SHA-256 of the document in its canonical form."""
    return hashlib.sha256(encode(document)).hexdigest()


_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?: [A-Za-z_][A-Za-z0-9_.-]{0,63})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_LISTEN = re.compile(
    r"(?:(?:\d{1,3}(?:\.\d{1,3}){3}|\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):)?\d{1,5}"
    r"|unix:/.+",
    re.ASCII,
)
_LISTEN_OPTION = re.compile(
    r"default_server|ssl|http2|proxy_protocol|reuseport|deferred|"
    r"(?:backlog|fastopen)=\d{1,9}|(?:rcvbuf|sndbuf)=\d{1,9}[kKmM]?|ipv6only=(?:on|off)|"
    r"so_keepalive=(?:on|off|(?:\d{1,5}[smh]?)?:(?:\d{1,5}[smh]?)?:\d{0,3})",
    re.ASCII,
)
_PROTOCOL = re.compile(r"TLSv1(?:\.[123])?", re.ASCII)
_SYSLOG = re.compile(
    r"syslog:server=(?:unix:/[A-Za-z0-9._/-]+|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?"
    r"|[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{1,5})?)"
    r"(?:,(?:nohostname|(?:facility|severity)=[a-z0-9]{1,10}|tag=[A-Za-z0-9_]{1,32})){0,4}",
    re.ASCII,
)
"""A syslog destination. Source: ngx_syslog_parse_args()."""
_SERVER_NAME = re.compile(r"(?:\*\.|\.)?[^\s;{}\"'\\$/*.~][^\s;{}\"'\\$/]*", re.ASCII)
_SERVER = re.compile(
    r"unix:/\S+|(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*)(?::\d{1,5})?", re.ASCII
)
_PORT = re.compile(r"(?:\A|:)(\d{1,5})\Z", re.ASCII)
_MOST_PORT = 65535
_SERVER_OPTION = re.compile(
    r"backup|down|weight=[1-9]\d{0,8}|(?:max_fails|max_conns)=\d{1,9}|fail_timeout=\d{1,9}(?:ms|[smhd])?",
    re.ASCII,
)
MOST_CHAINED = 10
"""Maximum number of roots to search in turn, since a request may have ten internal redirects
(NGX_HTTP_MAX_URI_CHANGES in ngx_http_named_location)."""
MOST = 256
"""Maximum number of entries in one list of a site."""


def check_site(site: Site) -> None:
    """Check that every value of a site can be written to an nginx.conf.

    Errors: UsageError that names the value.
    """
    _check_listens(site.listen, has_tls=site.tls is not None)
    _check_count("server_names", site.server_names)
    for name in site.server_names:
        _check(name, _SERVER_NAME, "server_names", "a name")
    _check_directories("roots", site.roots)
    _check_root_prefixes(site)
    _check_directories("cache_dirs", site.cache_dirs)
    _check_caches(site)
    _check_locations("hot_locations", site.hot_locations)
    _check_locations("streams", site.streams)
    for name in sorted({*site.streams} & {*site.hot_locations, *site.root_prefixes}):
        why = "is also in hot_locations or root_prefixes, so it would serve files too"
        raise UsageError(f"streams: {name} {why}")
    _check_upstreams(site.upstreams)
    if site.user is not None:
        _check(site.user, _USER, "user", "a user, or a user and a group")
    if site.tls is not None:
        _check_absolute(site.tls.certificate, "tls.certificate")
        _check_absolute(site.tls.certificate_key, "tls.certificate_key")
        for protocol in site.tls.protocols:
            _check(protocol, _PROTOCOL, "tls.protocols", "TLSv1, TLSv1.1, TLSv1.2 or TLSv1.3")
    if site.mime_types is not None:
        _check_absolute(site.mime_types, "mime_types")
    _check_count("gzip", site.gzip or ())
    for line in site.gzip or ():
        _check(line, GZIP_LINE, "gzip", "a gzip line of nginx, such as gzip on")
    for log in (site.error_log, site.access_log, *site.other_access_logs):
        if log not in (None, "off", "stderr") and not _SYSLOG.fullmatch(str(log)):
            _check_absolute(str(log), "log")


def _check_listens(listens: Sequence[str], *, has_tls: bool) -> None:
    _check_count("listen", listens, least=1)
    taken: set[SocketName] = set()
    for listen in listens:
        address, *options = listen.split() or [""]
        _check(address, _LISTEN, "listen", "an address and port, such as 127.0.0.1:8080")
        for option in options:
            _check(option, _LISTEN_OPTION, "listen", "an option of nginx's listen")
            if option == "ssl" and not has_tls:
                raise UsageError("listen: ssl needs a certificate and key in the site's tls")
        _check_host(address)
        _check_port(address, "listen")
        if (name := socket_name(address)) in taken:
            raise UsageError(f"listen: {address[:60]!a} is given twice")
        taken.add(name)


def _check_host(address: str) -> None:
    host = address.rpartition(":")[0].strip("[]") if ":" in address else address
    is_address = address.startswith("[") or (host and not host.strip("0123456789.") and "." in host)
    try:
        if is_address:
            ip_address(host)
    except ValueError:
        raise UsageError(f"listen: {address[:60]!a} is not an address") from None


def _check_port(address: str, field: str) -> None:
    port = _PORT.search(address)
    if port is not None and not 1 <= int(port[1]) <= _MOST_PORT:
        raise UsageError(f"{field}: {address[:60]!a}: ports are from 1 to {_MOST_PORT}")


def _check_directories(field: str, paths: Sequence[str]) -> None:
    _check_count(field, paths)
    for path in paths:
        _check_absolute(path, field)
    if len(set(paths)) < len(paths):
        raise UsageError(f"{field}: a directory is given twice")


def _check_caches(site: Site) -> None:
    tls = [] if site.tls is None else [site.tls.certificate, site.tls.certificate_key]
    logs = [site.error_log, site.access_log, *site.other_access_logs]
    kept = list(filter(None, [*tls, site.mime_types, *logs]))
    for path in site.cache_dirs:
        if why := why_no_place(path, kept=kept, caches=site.cache_dirs):
            raise UsageError(
                f"cache_dirs: {path[:60]!a} {why[:100]}", hint="name a new directory for the cache"
            )


def _check_root_prefixes(site: Site) -> None:
    prefixes = site.root_prefixes
    if not prefixes:
        if len(site.roots) > MOST_CHAINED:
            raise UsageError(
                f"roots: {len(site.roots)} are too many to search in turn: after {MOST_CHAINED} "
                "nginx returns 500",
                hint="assign URLs to roots: [site] root_prefixes, one for each root",
            )
        return
    if len(prefixes) != len(site.roots):
        raise UsageError(
            f"root_prefixes: {len(prefixes)} for {len(site.roots)} roots; give one per root"
        )
    for prefix in prefixes:
        if not prefix.startswith("/") or prefix in ("/healthz", "/nginx_status"):
            raise UsageError(f"root_prefixes: {prefix[:60]!a} is not a prefix of a URL path")
    if twice := _given_twice(prefixes):
        raise UsageError(f"root_prefixes: the prefix {twice[:60]!a} is given twice")
    if set(prefixes) & set(site.hot_locations):
        raise UsageError("root_prefixes: a prefix is also a hot location")


def _check_locations(name: str, prefixes: Sequence[str]) -> None:
    _check_count(name, prefixes)
    for prefix in prefixes:
        if not prefix.startswith("/") or prefix in ("/", "/healthz", "/nginx_status"):
            raise UsageError(f"{name}: {prefix[:60]!a} is not a location below /")
    if twice := _given_twice(prefixes):
        raise UsageError(f"{name}: the location {twice[:60]!a} is given twice")


def _check_upstreams(upstreams: Sequence[Upstream]) -> None:
    _check_count("upstreams", upstreams)
    for upstream in upstreams:
        _check(upstream.name, _NAME, "upstreams", "a name of letters, digits, '_', '.' and '-'")
        _check_count(f"servers of upstream {upstream.name}", upstream.servers, least=1)
        for server in upstream.servers:
            address, *options = server.split() or [""]
            _check(address, _SERVER, "upstreams", "a host and port")
            _check_port(address, "upstreams")
            for option in options:
                _check(option, _SERVER_OPTION, "upstreams", "an option of nginx's server")
        if all("backup" in server.split() for server in upstream.servers):
            raise UsageError(f"upstreams: {upstream.name} has only backup servers")
    names = [upstream.name.lower() for upstream in upstreams]
    if twice := _given_twice(names):
        raise UsageError(f"upstreams: the name {twice[:60]!a} is given twice")


def _given_twice(names: Sequence[str]) -> str:
    return next((name for name in names if names.count(name) > 1), "")


def _check_count(field: str, values: Sequence[object], *, least: int = 0) -> None:
    if not least <= len(values) <= MOST:
        raise UsageError(f"{field}: {len(values)} entries; {least} to {MOST} are allowed")


def _check(value: str, form: re.Pattern[str], field: str, wanted: str) -> None:
    if not form.fullmatch(value):
        raise UsageError(f"{field}: {value[:60]!a} is not {wanted}")


def _check_absolute(path: str, field: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f"{field}: {path[:60]!a} is not an absolute path")
