"""Which scanned directories hold what caches keep.

A site that caches serves files too, mostly beside the cache: their number and sizes say nothing of
the answers that are kept. A cache bounded by them would lose what is beyond, since nginx's manager
removes it (``ngx_http_file_cache_manager()``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from nginx_tune.documents.facts import Dataset
from nginx_tune.documents.site import Site


def scans_of_caches(datasets: Sequence[Dataset], site: Site) -> list[Dataset]:
    """The scans of the site's cache directories, or of what lies inside them.

    One of a directory above counts for a cache that is to come, where nothing that is served as
    files lies in it: it is what somebody wants to keep there. Beside a cache that stands it could
    be of anything.
    """
    caches = [PurePosixPath(path) for path in site.cache_dirs]
    to_come = [PurePosixPath(path) for path in site.cache_dirs if path not in site.cache_bounds]
    roots = [PurePosixPath(path) for path in site.roots]
    found = []
    for one in datasets:
        scanned = PurePosixPath(one.path)
        is_inside = any(scanned.is_relative_to(cache) for cache in caches)
        is_around = any(cache.is_relative_to(scanned) for cache in to_come)
        if is_inside or (is_around and not any(r.is_relative_to(scanned) for r in roots)):
            found.append(one)
    return found
