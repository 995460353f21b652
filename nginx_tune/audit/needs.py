"""The commands that get the facts which rules lack."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from nginx_tune.audit.storage import outermost

WHOLE_TREE = "the whole configuration"
"""Lacking where a file could not be parsed and a rule stands on what is not there."""

_NO_LOG_FILE = (
    "send the main context's error_log to a file, or search what collects it for 'queue overflow'"
)

_NOT_WHOLE = "audit the main file (nginx.conf) with every file that it includes in order: nginx -t"

MOST_DATASETS = 8

_PATH = re.compile(r"(?:datasets|storage\.paths)\[(.+)\]", re.DOTALL)


def commands_for(
    needs: Mapping[str, tuple[str, ...]], conf: str
) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Each rule with its facts and a command line that gets them.

    What ``inspect`` can get is asked for in one command for all rules. Paths are quoted for a
    shell.
    """
    inspected = {fact for facts in needs.values() for fact in facts if _is_inspected(fact)}
    inspect = _inspect(inspected, conf)
    for rule, facts in needs.items():
        if WHOLE_TREE in facts:
            yield rule, facts, _NOT_WHOLE
        elif all(map(_is_inspected, facts)):
            yield rule, facts, inspect
        elif "error_logs" in facts:
            yield rule, facts, _NO_LOG_FILE
        else:
            yield (
                rule,
                facts,
                (
                    f"nginx-tune audit {shlex.quote(conf)} --facts live "
                    "(on its host, as a user who may read the error log)"
                ),
            )


def _is_inspected(fact: str) -> bool:
    return fact != WHOLE_TREE and not fact.startswith("error_logs")


def _few(paths: set[str]) -> list[str]:
    """The paths, or directories around them when they are too many for one command."""
    found = outermost(paths)
    while len(found) > MOST_DATASETS:
        wider = outermost({posixpath.dirname(path) for path in found})
        if "/" in wider or "" in wider:
            return found
        found = wider
    return found


def _inspect(facts: Iterable[str], conf: str) -> str:
    paths = _few({match[1] for fact in facts if (match := _PATH.match(fact))})
    datasets = "".join(f" --dataset {shlex.quote(path)}" for path in paths)
    return (
        f"nginx-tune inspect{datasets} -f json -o facts.json && "
        f"nginx-tune audit {shlex.quote(conf)} --facts facts.json"
    )
