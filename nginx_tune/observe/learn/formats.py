"""Which format the logs are in: as wanted, else as a configuration has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from nginx_tune.conf.log_formats import format_of_log, log_formats, only_format
from nginx_tune.conf.tree import ConfTree
from nginx_tune.decide.workload.model_log_format import COMBINED, json_format, parse_log_format
from nginx_tune.documents.learnplan import Escape, LineFormat
from nginx_tune.errors import UsageError
from nginx_tune.host.climbing import absolute_path

_ESCAPES = ("default", "json", "none")


def choose_format(wanted: str | None, tree: ConfTree | None, logs: Sequence[str]) -> LineFormat:
    """The format of the logs: as wanted (a name, a string), else as the configuration says.

    Errors: UsageError for a name that neither nginx nor the configuration knows, and for logs that
    the configuration has in several formats: what is read as another would count as broken lines.
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
    """The one format that the configuration has the logs in; null where it names none of them."""
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
