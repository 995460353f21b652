"""A configuration's facts about access logs: their format, and the places of requests."""

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

import msgspec

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.locations import LocationMatcher
from nginx_tune.conf.logs import format_of_log, log_formats, only_format
from nginx_tune.conf.served import served_paths
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.workload.log_format import COMBINED, json_format, parse_log_format
from nginx_tune.documents.learning import (
    Configuration,
    Escape,
    LineFormat,
    LoggedPlace,
    RequestSample,
    SampledRequest,
)
from nginx_tune.errors import UsageError
from nginx_tune.host.paths import absolute_path

_ESCAPES = ("default", "json", "none")


def choose_format(wanted: str | None, tree: ConfTree | None, logs: Sequence[str]) -> LineFormat:
    """The format of the logs: the requested one (a name, a string), else the configuration's.

    Errors: UsageError for a name that neither nginx nor the configuration knows, and for logs that
    the configuration writes in several formats: lines of another format would count as broken.
    """
    defined = {} if tree is None else log_formats(tree)
    name = wanted
    if name is None and tree is not None:
        name = _told_format(tree, logs) or only_format(tree)
    if name is None:
        name = "combined"
    if name in defined:
        form = defined[name]
        if form.escape not in _ESCAPES:
            raise UsageError(f"log format '{name}': escape={form.escape} is unknown")
        return parse_log_format(form.text, name=name, escape=cast("Escape", form.escape))
    if name == "combined":
        return parse_log_format(COMBINED, name="combined")
    if name == "json":
        return json_format()
    if "$" in name:
        return _given_format(name)
    known = ", ".join(sorted({*defined, "combined", "json"}))
    raise UsageError(
        f"no log format '{name}'" + ("" if tree is not None else " without a configuration"),
        hint=f"known are {known}; -c CONF reads those of a configuration",
    )


def _told_format(tree: ConfTree, logs: Sequence[str]) -> str | None:
    """The format in which the configuration writes the logs; None if it names no log among them."""
    told = {format_of_log(tree, absolute_path(log)): log for log in logs if log != "-"}
    told.pop(None, None)
    if len(told) > 1:
        (one, log), (other, another) = list(told.items())[:2]
        raise UsageError(
            f"{log} is written in the format '{one}', {another} in '{other}'",
            hint="learn from the logs of one format at a time, or name one with --log-format",
        )
    return next(iter(told), None)


def _given_format(text: str) -> LineFormat:
    first, _, rest = text.partition(" ")
    if first.startswith("escape=") and first[7:] in _ESCAPES:
        return parse_log_format(rest.strip(), escape=cast("Escape", first[7:]))
    form = parse_log_format(text)
    if text.lstrip().startswith("{"):
        return parse_log_format(text, escape="json")
    return form


class Places:
    """The servers and locations of a configuration, numbered in their order."""

    def __init__(self, tree: ConfTree) -> None:
        self._matcher = LocationMatcher(tree)
        roots: dict[tuple[str, int], set[str]] = defaultdict(set)
        for served in served_paths(tree):
            if served.via != "cache":  # its directory is the cache's, not the location's
                roots[served.scope.own.file, served.scope.own.line].add(served.root)
        self._numbers: dict[Directive, int] = {}
        places: list[LoggedPlace] = []
        for server in self._matcher.servers:
            names = server.block.first("server_name") if server.block is not None else None
            for own in (server, *self._matcher.locations_in(server)):
                self._numbers[own] = len(places)
                own_roots = roots[own.file, own.line]
                places.append(
                    LoggedPlace(
                        server=names.value if names is not None else "",
                        location=" ".join(own.args),
                        file=own.file,
                        line=own.line,
                        root=next(iter(own_roots)) if len(own_roots) == 1 else None,
                    )
                )
        self.configuration = Configuration(
            servers=len(self._matcher.servers),
            places=places,
            notes=[
                f"{place.file}:{place.line}: only nginx can read this location's pattern; "
                "it is taken not to match"
                for place in self._matcher.unreadable
            ],
        )

    def find(self, sample: RequestSample) -> RequestSample:
        """The requests, with the number of their place instead of the path.

        Most other fields are left out.
        """
        found = [(line, self._found(request)) for line, request in sample.requests]
        return msgspec.structs.replace(sample, requests=found if self._numbers else [])

    def _found(self, request: SampledRequest) -> SampledRequest:
        server = self._matcher.server_of(request.server)
        if server is None:
            return request
        place = self._matcher.location_of(server, request.path) or server
        return SampledRequest(
            times=request.times, end=0, duration=0, object=0, sent=request.sent, size=-1,
            range=None, server="named" if request.server else "", path=str(self._numbers[place]),
        )  # fmt: skip
