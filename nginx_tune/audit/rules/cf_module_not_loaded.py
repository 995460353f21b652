import posixpath
from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.hit import Hit, MissingFacts
from nginx_tune.audit.rule import Example, Rule, linux
from nginx_tune.conf.known_directives import is_foreign, is_listed, newest_version, rows_of
from nginx_tune.documents.decisions import Evidence

_DYNAMIC = {
    "stream": ("--with-stream=dynamic", "ngx_stream_module"),
    "mail": ("--with-mail=dynamic", "ngx_mail_module"),
}


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Blocks of dynamic modules that no ``load_module`` line loads."""
    if context.facts.nginx.product not in {None, "nginx"}:
        return
    flags = context.facts.nginx.flags
    loaded = {
        posixpath.basename(line.value).removesuffix(".so")
        for line in context.tree.main.all("load_module")
    }
    for name, (flag, module) in _DYNAMIC.items():
        place = context.tree.main.first(name)
        if place is None or context.tree.is_part or module in loaded:
            continue
        if context.flags is None:
            yield MissingFacts(("nginx.flags",))
        elif flag.partition("=")[0] not in context.flags:
            yield Hit(
                place,
                f'"{name}" is not compiled into this nginx, and no load_module line provides it',
                [Evidence(fact="nginx.flags", value=f"no {flag.partition('=')[0]}")],
            )
        elif flag in flags:
            yield Hit(
                place,
                f'"{name}" is a dynamic module of this build, and no load_module line loads it',
                [Evidence(fact="nginx.flags", value=flag)],
                fix=f"Add load_module modules/{module}.so; at the top of the main file.",
            )
    yield from _directives(context, loaded)


def _directives(context: Context, loaded: set[str]) -> Iterator[Hit]:
    """The first line of each module that is surely not loaded."""
    flags = context.facts.nginx.flags
    if not context.flags or "--add-module" in context.flags:
        return
    reported: set[str] = set()
    is_known_release = context.version is not None and context.version <= newest_version()
    for kind, lines in context.kinds.items():
        rows = [row for row in rows_of(kind.name) if row.may_stand(kind.context)]
        modules = {row.module for row in rows}
        if not loaded and not rows_of(kind.name) and is_listed(kind.name) and is_known_release:
            message = f'"{kind.name}" is of nginx Plus or another module, and none is loaded'
            yield Hit(lines[0], message, [Evidence(fact="nginx.flags", value="no --add-module")])
        if modules <= reported or modules & loaded:
            continue
        dynamic = [f"{_PACKAGED.get(module, '')}=dynamic" for module in modules]
        if all(flag in flags for flag in dynamic):
            evidence = Evidence(fact="nginx.flags", value=dynamic[0])
        elif not loaded and all(map(_is_added, modules)):
            evidence = Evidence(fact="nginx.flags", value="no --add-module")
        else:
            continue
        reported |= modules
        message = f'"{kind.name}" is of {min(modules)}, which no load_module line loads'
        yield Hit(lines[0], message, [evidence])


def _is_added(module: str) -> bool:
    """True for a module that is not in nginx's own sources."""
    return "_js_" in module or is_foreign(module)


_PACKAGED = {
    "ngx_http_geoip_module": "--with-http_geoip_module",
    "ngx_http_image_filter_module": "--with-http_image_filter_module",
    "ngx_http_perl_module": "--with-http_perl_module",
    "ngx_http_xslt_filter_module": "--with-http_xslt_module",
}
"""Modules of nginx that distributions build as files of their own, with their flags."""

_CONF = "events {} stream { server { listen 53; proxy_pass 10.0.0.1:53; } }"
_HOST = linux(flags=("--with-threads", "--with-stream=dynamic"))

RULE = Rule(
    id="cf-module-not-loaded",
    severity="error",
    title="stream, mail or a directive without its module",
    why='nginx does not start: emerg "unknown directive "stream"". Distributions package these '
    "modules separately.",
    fix="Install the module's package, and load the module at the top of the main file.",
    sources=(
        "https://nginx.org/en/docs/ngx_core_module.html#load_module",
        "nginx: src/core/ngx_conf_file.c, ngx_conf_handler",
    ),
    proof="proven",
    proven_on=("1.22",),
    whole_tree=True,
    bad=Example(_CONF, _HOST),
    good=Example("events {}", _HOST),
    check=check,
)
