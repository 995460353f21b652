"""Security advisories of nginx, matched with a version and a configuration.

The table is ``conf/advisories.tsv``. The last column of a row has alternatives separated by ``|``;
each has terms separated by ``+`` that must all hold:

``mp4``                     the directive, with a value other than ``off``
``listen quic``             with that argument, in upper or lower case
``proxy_pass https:*``      with an argument that begins like this
``mail/resolver``           within that block
``server*2``                at least that often
``32-bit``                  on a 32-bit machine
``always``, ``never``       regardless of the configuration; not applicable (Windows)
``capture-before-map`` …    a function below
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from nginx_tune.audit.context import Context, parse_version
from nginx_tune.conf.directive import Directive
from nginx_tune.conf.known_directives import Version, read_table
from nginx_tune.conf.scopes import Scope

_CAPTURE = re.compile(r"\$\{?[1-9]")
_NUMBERED = re.compile(r"\$[0-9]")
_NAMED_GROUP = re.compile(r"\(\?P?<(\w+)>")
_NESTED_GROUPS = re.compile(r"\((?!\?)(?:[^()\\]|\\.)*\((?!\?)")
_RANGE = re.compile(r"([0-9.]+)(?:-([0-9.]+))?")
_NARROW = re.compile(r"i[3-6]86|armv[5-7].*|mips|ppc|s390")


class Advisory(NamedTuple):
    """One row of the table."""

    cve: str
    severity: str
    """``major``, ``medium``, ``low``, ``minor`` or ``none``."""
    vulnerable: str
    good: str
    title: str
    source: str
    triggers: str

    def concerns(self, version: Version) -> bool:
        """True if a release of nginx has the vulnerability.

        ``good`` lists the first fixed release of each branch (``1.31.3+, 1.30.4+``).
        """
        ranges = [_RANGE.fullmatch(part.strip()) for part in self.vulnerable.split(",")]
        is_within = any(
            _parsed(one[1]) <= version <= _parsed(one[2] or one[1]) for one in ranges if one
        )
        return is_within and not any(
            version[:2] == fixed[:2] and version >= fixed for fixed in self.fixed
        )

    @property
    def fixed(self) -> list[Version]:
        """The first fixed release of each branch."""
        words = [part.strip().removesuffix("+") for part in self.good.split(",")]
        return [found for word in words if (found := parse_version(word)) is not None]


@lru_cache(maxsize=1)
def advisories() -> tuple[Advisory, ...]:
    """Every row of the table, newest first."""
    lines = read_table("advisories.tsv").splitlines()
    return tuple(Advisory(*line.split("\t")) for line in lines if not line.startswith("#"))


def places(
    context: Context, advisory: Advisory, known: dict[str, Directive | bool]
) -> list[Directive]:
    """The lines that an advisory applies to, one per term; empty if it does not apply.

    ``known`` caches the result of each term, for all advisories.
    """
    for alternative in advisory.triggers.split("|"):
        terms = [term.strip() for term in alternative.split("+")]
        for term in terms:
            if term not in known:
                known[term] = _place(context, term)
        found = [known[term] for term in terms]
        if all(found):
            return [
                directive for directive in found if isinstance(directive, Directive)
            ] or _representative_line(context)
    return []


def _place(context: Context, term: str) -> Directive | bool:
    """The line that a term matches, or True or False for a term without a line."""
    if term in _SHAPES:
        return next(_SHAPES[term](context), False)
    if term in {"always", "never", "?"}:
        return term == "always"
    if term == "32-bit":
        return _NARROW.fullmatch(context.facts.kernel.machine or "") is not None
    name, _, word = term.partition(" ")
    name, _, times = name.partition("*")
    block, _, name = name.rpartition("/")
    lines = context.lines_by_name.get(name, [])
    if block:
        around = [
            directive.block
            for directive in context.tree.main.all(block)
            if directive.block is not None
        ]
        lines = [line for block in around for line in block.within(name)]
    wanted = int(times or 1)
    if word and not _has_word({arg.lower() for line in lines for arg in line.args}, word):
        return False
    found = list(islice((line for line in lines if _matches(line, word)), wanted))
    return found[0] if len(found) == wanted else False


def _matches(line: Directive, word: str) -> bool:
    if not word:
        return [arg.lower() for arg in line.args] != ["off"]
    return _has_word({arg.lower() for arg in line.args}, word)


def _has_word(words: Collection[str], word: str) -> bool:
    wanted = word.lower()
    if wanted.endswith("*"):
        return any(one.startswith(wanted[:-1]) for one in words)
    return wanted in words


def _capture_before_map(context: Context) -> Iterator[Directive]:
    """Directives with a capture in an argument, then a map variable whose patterns reset it.

    Source: src/http/ngx_http_script.c, ngx_http_script_copy_capture_code.
    """
    for line in context.lines_by_name.get("map", []):
        keys = [directive.name for directive in line.block or []]
        patterns = [key for key in keys if key.startswith("~")]
        if not patterns or len(line.args) < 2:  # noqa: PLR2004
            continue
        own = [name for key in patterns for name in _NAMED_GROUP.findall(key)]
        captures = "|".join([r"[1-9]", *map(re.escape, own)])
        text = re.compile(rf"\$\{{?(?:{captures})\b.*\$\{{?{re.escape(line.args[1][1:])}\b")
        yield from (
            directive
            for directive in context.tree.main.walk()
            if any(text.search(arg) for arg in directive.args)
        )


def _capture_in_subrequest(context: Context) -> Iterator[Directive]:
    """Directives of proxy modules with a numbered capture, where nginx makes subrequests.

    It makes them for slices and for background cache updates.
    Source: ngx_http_regex_exec, which reallocated r->captures but left the old r->ncaptures.
    """
    names = [name for name in context.names if name.partition("_")[0] in _PROXY_MODULES]
    lines = (line for name in names for line in context.lines_by_name[name])
    with_capture = {
        line
        for line in lines
        if any(map(_CAPTURE.search, line.args)) and not line.name.endswith("_purge")
    }
    for scope in context.scopes if with_capture else ():
        for line in (one for level in scope.chain for one in level.block or []):
            if line in with_capture and _has_subrequests(scope, line.name.partition("_")[0]):
                yield line


def _has_subrequests(scope: Scope, module: str) -> bool:
    is_cached = scope.value(f"{module}_cache", "off") != "off"
    is_updated = is_cached and scope.value(f"{module}_cache_background_update", "off") == "on"
    return is_updated or scope.value("slice", "0") != "0"


def _rewrite_nested_captures(context: Context) -> Iterator[Directive]:
    """Rewrites with nested groups in the pattern, several captures and no other variables.

    Only redirects and rewrites that add arguments are affected.
    Source: ngx_http_script_regex_start_code.
    """
    for line in context.lines_by_name.get("rewrite", []):
        pattern, text, *flags = [*line.args, "", ""][:3]
        escapes = "?" in text or text.startswith("http") or flags[0] in {"redirect", "permanent"}
        is_all_captures = len(_NUMBERED.findall(text)) > 1 and "$" not in _NUMBERED.sub("", text)
        if is_all_captures and escapes and _NESTED_GROUPS.search(pattern):
            yield line


def _rewrite_arguments_before_capture(context: Context) -> Iterator[Directive]:
    """Rewrites that add arguments, before a set or if line with a capture.

    Source: ngx_http_script_regex_end_code, which left e->is_args set.
    """
    if not any(map(_adds_arguments, context.lines_by_name.get("rewrite", ()))):
        return
    for around in [
        context.tree.main,
        *(directive.block for directive in context.tree.main.walk() if directive.block),
    ]:
        before: Directive | None = None
        for line in around:
            later = [line, *(line.block.walk() if line.block is not None else [])]
            if before is not None and any(
                directive.name in {"set", "if"} and any(map(_CAPTURE.search, directive.args))
                for directive in later
            ):
                yield before
                break
            if line.name == "rewrite" and _adds_arguments(line):
                before = line


def _adds_arguments(rewrite: Directive) -> bool:
    return len(rewrite.args) == 2 and "?" in rewrite.args[1]  # noqa: PLR2004


_PROXY_MODULES = frozenset({"proxy", "fastcgi", "uwsgi", "scgi", "grpc"})
_SHAPES: dict[str, Callable[[Context], Iterator[Directive]]] = {
    "capture-before-map": _capture_before_map,
    "capture-in-subrequest": _capture_in_subrequest,
    "rewrite-nested-captures": _rewrite_nested_captures,
    "rewrite-arguments-before-capture": _rewrite_arguments_before_capture,
}


def _representative_line(context: Context) -> list[Directive]:
    """The line that represents the whole configuration."""
    blocks = ("http", "stream", "mail", "server", "events")
    found = (line for name in blocks for line in context.lines_by_name.get(name, []))
    return [directive for directive in [next(found, None)] if directive is not None]


def _parsed(text: str) -> Version:
    return parse_version(text) or ()
