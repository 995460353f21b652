from collections.abc import Iterator
from itertools import chain

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import known_here, named_twice, repeated
from nginx_tune.audit.hit import Hit, MissingFacts, written
from nginx_tune.audit.rule import Example, Rule
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.values import is_open, parameter, parse_bytes

_ZONES_OF_MANY = frozenset({"zone", "ssl_session_cache"})
"""Directives of which several may name the same zone (ngx_shared_memory_add)."""


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Directives that may appear once in a block, or once per name, and appear twice."""
    if context.tree.is_template:
        return
    for second, name, first in chain(
        named_twice(context), _paths_twice(context), _zones_twice(context)
    ):
        yield Hit(
            second, f"{name} is already defined at {first.file}:{first.line}", [written(first)]
        )
    for second, first in chain(repeated(context), _limits_twice(context)):
        yield Hit(
            second,
            f'"{second.name}" is already set in this block, at {first.file}:{first.line}',
            [written(first)],
        )


def _limits_twice(context: Context) -> Iterator[tuple[Directive, Directive]]:
    """Second limits of a block by the same zone. Source: ngx_http_limit_req."""
    for name in ("limit_req", "limit_conn"):
        for block in context.blocks_that_set(name):
            first_lines: dict[str, Directive] = {}
            for line in block[name]:
                zone = line.value if name == "limit_conn" else parameter(line.args, "zone") or ""
                earlier = first_lines.setdefault(zone, line)
                if zone and not is_open(zone) and earlier is not line:
                    yield line, earlier


def _paths_twice(context: Context) -> Iterator[tuple[Directive, str, Directive]]:
    """Directories of a cache, or of temporary files, that another line uses in another way.

    Source: ngx_add_path.
    """
    first_lines: dict[str, tuple[list[str] | None, Directive]] = {}
    for kind, _, directives in known_here(context):
        is_cache = kind.name.endswith("_cache_path")
        for line in directives if is_cache or kind.name.endswith("_temp_path") else ():
            if is_open(line.value):
                continue
            levels = None if is_cache else [level for level in line.args[1:] if level.strip("0")]
            first, earlier = first_lines.setdefault(line.value, (levels, line))
            if earlier is not line and (is_cache or levels != first):
                name = line.name if is_cache else "another use of the directory"
                yield line, f'{name} "{line.value}"', earlier


def _zones_twice(context: Context) -> Iterator[tuple[Directive, str, Directive]]:
    """Second uses of a shared memory zone: (the line, what it defines, an earlier line).

    Source: ngx_shared_memory_add.
    """
    first_lines: dict[str, tuple[tuple[str, bool], Directive]] = {}
    sizes: dict[str, tuple[int, Directive]] = {}
    for kind, _, directives in known_here(context):
        use = kind.name, kind.context.startswith("stream")
        for line in directives:
            zone, _, size = _shared_zone(line).partition(":")
            if not zone or is_open(zone):
                continue
            first_use, earlier = first_lines.setdefault(zone, (use, line))
            if earlier is not line and (use != first_use or use[0] not in _ZONES_OF_MANY):
                yield line, f'shared memory zone "{zone}"', earlier
            elif number := parse_bytes(size):  # "zone NAME;" takes the size of another line
                first_size, earlier = sizes.setdefault(zone, (number, line))
                if number != first_size:
                    yield line, f'shared memory zone "{zone}" of another size', earlier


def _shared_zone(line: Directive) -> str:
    """The shared memory zone of a line, as ``NAME:SIZE``; empty if it has none."""
    if line.name == "zone":
        return ":".join(line.args[:2])
    if line.name == "ssl_session_cache":
        shared = next((arg for arg in line.args if arg.startswith("shared:")), "")
        return shared.removeprefix("shared:")
    if line.name in {"limit_req_zone", "limit_conn_zone"}:
        return parameter(line.args, "zone") or ""
    if line.name.endswith("_cache_path"):
        return parameter(line.args, "keys_zone") or ""
    return ""


RULE = Rule(
    id="cf-directive-twice",
    severity="error",
    title="a directive appears twice in one block",
    why='nginx does not start: emerg "directive is duplicate", "is already declared" or "the '
    'same path name". Often one of the two comes from an included file.',
    fix="Remove one of them; an inner block may set its own. A zone that several lines share needs "
    "the same size in each, and a directory of temporary files the same levels.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_set_flag_slot and its kin",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    bad=Example("events {} http { sendfile on; sendfile off; }"),
    good=Example("events {} http { sendfile on; server { sendfile off; } }"),
    check=check,
)
