"""crossplane reads what was written: what was meant, and nothing of what was lost on the way."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
import tiers
from msgspec.structs import replace
from test_plan_changes import decided, facts_of, planned, write

from nginx_tune.change.generate.nginx_conf import emit_plain
from nginx_tune.change.generate.writing import spelled_out
from nginx_tune.change.plan.changing import as_changes
from nginx_tune.cli.second_reading import check_generated, check_planned
from nginx_tune.conf.parser import read_tokens
from nginx_tune.documents.site import Site, SiteTls, Upstream
from nginx_tune.errors import UndecidedError

ODD = "/srv/a b;{c} d\"e'f\\g#h"
"""A directory of which every character must be quoted."""
TLS = SiteTls(certificate=f"{ODD}/cert.pem", certificate_key=f"{ODD}/key.pem")
EMITTED: dict[str, Callable[[], str]] = {
    "static": partial(emit_plain, Site(roots=[f"{ODD}/1", f"{ODD}/2"], tls=TLS)),
    "cache": partial(
        emit_plain,
        Site(upstreams=[Upstream(name="app", servers=["[::1]:80"])], cache_dirs=[ODD]),
        "cache",
    ),
}
CURRENT_SETTINGS = r"""worker_processes 2;  # it's the box's "{"
events { worker_connections 512; }
http {
    log_format own '$remote_addr "$request" $status';
    map $uri $to { "~^/a b{2};" "$uri;"; default ''; }
    server {
        listen 8080;
        location /img/ { root "/srv/a b"; add_header X-A "b; \"c\""; }
        location ~ "\.(css|js){1}$" { root ${uri}x; if ($to = "") { return 204; } }
        location /api/ { proxy_set_header Host $host; proxy_pass http://127.0.0.1:9000; }
    }
}
"""
_LOST = re.compile(r"\$\{?\w+\}?")


def losses(text: str) -> Iterator[tuple[int, int]]:
    """The places of quotes, variables, semicolons and braces that mean something."""
    for mark, _, quote, start, end in read_tokens(text):
        if mark:
            yield start, end
        elif quote:
            yield start, start + 1
            yield end - 1, end
        yield from (() if mark else (one.span() for one in _LOST.finditer(text, start, end)))


def spoiled(text: str, count: int, chance: Random) -> Iterator[str]:
    for start, end in chance.choices(list(losses(text)), k=count):
        yield text[:start] + text[end:]


def is_found(check: Callable[[], object]) -> bool:
    try:
        check()
    except UndecidedError:
        return True
    return False


def test_of_a_hundred_losses_in_what_is_generated_it_finds_ninety_five() -> None:
    found = []
    for name, emit in EMITTED.items():
        with spelled_out():
            meant = emit()
        check_generated(emit(), emit)
        found += [
            is_found(partial(check_generated, text, partial(str, meant)))
            for text in spoiled(emit(), 50, tiers.dice(name))
        ]
    assert sum(found) >= 95


def test_of_a_hundred_losses_in_what_is_planned_it_finds_ninety_five(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": CURRENT_SETTINGS})
    facts = facts_of("raid10-4hdd")
    decisions = as_changes(decided(tree, facts, "static"), tree).decisions
    [file] = planned(tree, facts).files
    old = CURRENT_SETTINGS.encode()
    assert check_planned(file, old, decisions)
    found = [
        is_found(partial(check_planned, replace(file, content=text.encode()), old, decisions))
        for text in spoiled(file.content.decode(), 100, tiers.dice("plan"))
    ]
    assert sum(found) >= 95


def test_what_nothing_asked_for_is_found(tmp_path: Path) -> None:
    tree = write(tmp_path, {"nginx.conf": CURRENT_SETTINGS})
    facts = facts_of("raid10-4hdd")
    silent = [replace(one, settings=[]) for one in decided(tree, facts, "static").decisions]
    [file] = planned(tree, facts).files
    with pytest.raises(UndecidedError, match=r"nginx\.conf:\d+: .*this .* is not part of the plan"):
        check_planned(file, CURRENT_SETTINGS.encode(), silent)


def test_where_crossplane_misreads_what_stands_it_does_not_look(tmp_path: Path) -> None:
    """It ends a word at a closing brace, where nginx does not."""
    text = CURRENT_SETTINGS.replace("listen 8080;", "listen 8080; server_name a}b;")
    tree = write(tmp_path, {"nginx.conf": text})
    [file] = planned(tree, facts_of("raid10-4hdd")).files
    assert not check_planned(file, text.encode(), [])
