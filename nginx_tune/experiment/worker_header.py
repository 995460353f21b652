"""The worker's number in every response of a tree, and nothing else of it changed; pure.

A level takes the ``add_header`` lines of the level around it only where it has none of its own
(ngx_http_headers_merge_conf). So the line goes into ``http``, for every level that takes what is
there, and beside the first ``add_header`` of each level that has its own. It begins no line:
what nginx says of the others keeps their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.conf.directive import Directive
from nginx_tune.conf.edits import ConflictError, Edit, apply_edits
from nginx_tune.conf.scopes import http_blocks, scopes
from nginx_tune.conf.tree import ConfTree

HEADER = "X-Probe-Worker"
HEADER_WORDS = (HEADER, "$pid", "always")
_LINE = f"add_header {' '.join(HEADER_WORDS)};"


def with_worker_header(trees: Sequence[ConfTree]) -> list[dict[str, bytes]]:
    """Of each tree the files that get the line, with it; of none where one cannot have it."""
    found = [_files_of(tree) for tree in trees]
    return found if all(found) else [{} for _ in trees]


def _files_of(tree: ConfTree) -> dict[str, bytes]:
    if tree.is_part or "add_header_inherit" in tree.names:  # the line would come twice
        return {}
    edits = [_behind(http, (http.start, "add_header")) for http in http_blocks(tree)]
    own = [scope.sets("add_header") for scope in scopes(tree)]
    edits += [_behind(line) for line in own if line is not None]
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.source.file, []).append(edit)
    try:
        return {file: apply_edits(found[0].source, found) for file, found in by_file.items()}
    except ConflictError:
        return {}


def _behind(directive: Directive, claim: tuple[int, str] | None = None) -> Edit:
    """Ours on the line of a directive, or of the brace that opens its block."""
    return Edit(directive.source, directive.end, directive.end, f" {_LINE}", claim)
