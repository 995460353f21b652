"""The file of tuning advice, and the pairs of configurations made from it."""

from pathlib import Path
from typing import Literal

import msgspec

PACKAGED = """\
# {comment}
user www-data;
pid nginx.pid;
error_log error.log;
{main}
events {{
    {events}
}}
http {{
    types {{ }}
    default_type application/octet-stream;
    {http}
    server {{
        listen 80{listen};
        root /srv/site;
    }}
}}
"""
"""The parts of Debian's nginx.conf that matter for files; a lab fills ``root``."""

DEFAULTS = {
    "main": {"worker_processes": "auto"},
    "events": {"worker_connections": "768"},
    "http": {"sendfile": "on", "tcp_nopush": "on", "access_log": "access.log"},
}
"""The packaged file's directives, by context, for those that neither variant sets."""

Variant = Literal["with", "without"]


class Lines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Directives by context; ``listen`` has only its parameters."""

    main: str = ""
    events: str = ""
    http: str = ""
    listen: str = ""


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"with_": "with"}):
    """A setting to try: its sources, their promise, and the lines with and without it."""

    name: str
    sources: list[str]
    said: str
    reading: str = ""
    with_: Lines = Lines()
    without: Lines = Lines()
    connections: Literal["kept", "new"] = "kept"


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lab for the advice, with the metric that decides there."""

    name: str
    file: str
    title: str
    data: str
    primary: str
    workload: str = ""
    """The file with the request rate; empty for users who pause between requests."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text with the advice."""

    title: str
    link: str


class Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    labs: list[Lab]
    sources: dict[str, Source]
    advice: list[Advice]


def read(folder: Path) -> Book:
    """The advice, the labs and the texts. Errors: msgspec.ValidationError."""
    return msgspec.toml.decode((folder / "advice.toml").read_bytes(), type=Book)


def files(book: Book) -> dict[str, str]:
    """The configurations beside the advice, by file name."""
    return {
        f"{advice.name}.{variant}.conf": configuration(advice, variant)
        for advice in book.advice
        for variant in ("without", "with")
    }


def configuration(advice: Advice, variant: Variant) -> str:
    """The packaged configuration with a variant's lines added."""
    lines = advice.with_ if variant == "with" else advice.without
    http = directives(lines.http)
    if advice.connections == "new":
        http.append("keepalive_timeout 0")
    return PACKAGED.format(
        comment=f"{advice.name}: {variant} it",
        main="\n".join(_put_in("main", directives(lines.main))),
        events="\n    ".join(_put_in("events", directives(lines.events))),
        http="\n    ".join(_put_in("http", http)),
        listen=f" {lines.listen}" if lines.listen else "",
    )


def directives(text: str) -> list[str]:
    """The single directives of a line, without their semicolons."""
    return [part.strip() for part in text.split(";") if part.strip()]


def _put_in(context: str, given: list[str]) -> list[str]:
    named = {one.split(None, 1)[0] for one in given}
    kept = [f"{name} {value}" for name, value in DEFAULTS[context].items() if name not in named]
    return [f"{one};" for one in (*kept, *given)]
