"""``cf-value-invalid``."""

from __future__ import annotations

from collections.abc import Iterator

from nginx_tune.audit.context import Context
from nginx_tune.audit.directives import value_faults
from nginx_tune.audit.hit import Hit, MissingFacts, hit_at
from nginx_tune.audit.rule import Example, Rule


def check(context: Context) -> Iterator[Hit | MissingFacts]:
    """Values that nginx's own setters refuse."""
    for fault in value_faults(context):
        yield hit_at(fault.place, f'"{fault.place.name}" takes {fault.said}')


RULE = Rule(
    id="cf-value-invalid",
    severity="error",
    title="a value that nginx does not take",
    why='nginx does not start: emerg "invalid value". A size takes k and m (g only where it is '
    "about files), a time ms, s, m, h, d, w, M and y from the largest down, a switch on or off.",
    fix="Write the value as the directive takes it.",
    sources=(
        "nginx: src/core/ngx_conf_file.c, ngx_conf_set_flag_slot and its kin",
        "nginx: src/core/ngx_parse.c",
        "the command tables of nginx 1.18.0, 1.22.1, 1.26.3 and 1.30.6",
    ),
    proof="proven",
    proven_on=("1.18", "1.22", "1.26", "1.30"),
    about="Of directives that read their arguments by code of their own the frequent ones are "
    "judged (allow and deny, expires, zones, server of an upstream and others). Nothing is said of "
    "values that a template has still to fill in ($, {{). Where several versions may be meant, "
    "what any of them takes is taken.",
    bad=Example("events {} http { client_body_timeout 60sec; }"),
    good=Example("events {} http { client_body_timeout 60s; }"),
    check=check,
)
