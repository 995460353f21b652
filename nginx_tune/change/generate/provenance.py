"""The header of a generated file: what it was made from, and how to make it again."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from nginx_tune import __version__
from nginx_tune.change.generate.quoting import Written
from nginx_tune.documents.base import Document, encode
from nginx_tune.documents.facts import Facts
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload


@dataclass(frozen=True)
class Provenance:
    """The inputs of one generated file."""

    kind: Kind
    facts: Facts
    workload: Workload | None = None
    """None when the kind's profile was assumed."""
    site: Site = field(default_factory=Site)
    """As read, before ``roots`` and ``cache_dirs`` of the command line."""
    roots: Sequence[str] = ()
    cache_dirs: Sequence[str] = ()


def header(provenance: Provenance | None) -> Written:
    """Comment lines; the same inputs give the same lines anywhere."""
    if provenance is None:
        return Written(f"# Made by nginx-tune {__version__}.")
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
    lines = [
        f"nginx.conf for the kind {provenance.kind}, made by nginx-tune {__version__}.",
        "The same inputs give the same bytes:",
        f"  {' '.join(words)}",
        "with these documents, as nginx-tune writes them:",
        *[f"  {name}.json  sha256:{digest(document)}" for name, _, document in inputs],
    ]
    return Written("\n".join(f"# {line}" for line in lines))


def _shell_word(path: str) -> str:
    """The path as one printable word of a shell; what cannot be seen is written in hexadecimal.

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
