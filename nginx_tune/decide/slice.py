"""``slice``: a cache that fetches and keeps the parts of large objects, not all of each.

A cache answers a range from the whole object: nginx takes ``Range`` off the request to the server
and fetches all of it, and who asks for its end waits for the rest. With ``slice`` each part is a
request and an entry of its own, by ``$slice_range`` in the key. That pays where a log shows ranges
of large objects, of which clients take a part. It is proposed, never written: the server must
answer ranges, and an object that changes in place while it is fetched ends in a cut answer
(another ETag than the first part's), which no host shows. What a cache holds under the key of today
is fetched anew.

Each part is one more round trip to the server, a file and a key; a large one fetches what nobody
asked for at both ends of a range. An eighth of what an answer carries makes that one part in nine.

Source: ngx_http_slice_header_filter() in ngx_http_slice_filter_module.c.
"""

from __future__ import annotations

import math
from typing import Final

from nginx_tune.decide.answer import LEARN_COMMAND, not_applicable, setting
from nginx_tune.decide.build import version_evidence
from nginx_tune.decide.cache_key import key_of
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.quantity import Quantity, known
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision
from nginx_tune.documents.units import bytes_text, nginx_size, percent_text

ID: Final = "slice"
SMALLEST_BYTES = 1 << 20
"""Less would open a file of the cache for every few packets."""
LARGEST_BYTES = 16 << 20
PARTS = 8
"""Of what one answer carries."""
_PART_TAKEN = 0.5
"""Share of an object that clients take, of which more is worth a fetch of all of it."""
_RANGES = 0.05
"""Share of answers that are ranges, of which fewer are not worth another key."""
_LARGE_BYTES = 4 * SMALLEST_BYTES
_FLAG = "--with-http_slice_module"
ASK_COMMAND: Final = "curl -s -r 0-0 -D - -o /dev/null http://UPSTREAM/OBJECT  # 206 and an ETag?"


def decide_slice(s: Situation, _plan: PoolPlan) -> Decision:
    """The decision."""
    if s.kind != "cache":
        return not_applicable(ID, "Nothing is cached.")
    if not s.build.at_least(1, 9, 8) or s.build.lacks(_FLAG):
        return not_applicable(
            ID,
            f"nginx {s.build.text} has no slice module.",
            evidence=[version_evidence(s.build)],
            flips=f"nginx is 1.9.8 or newer and built {_FLAG}",
        )
    sizes = s.workload.sizes
    evidence = known(
        s.object_bytes,
        Quantity("workload.sizes.partial_ratio", sizes.partial_ratio, "", sizes.provenance),
        Quantity("workload.sizes.sent_ratio", sizes.sent_ratio, "", sizes.provenance),
    )
    flips = (
        f"a log shows that one answer in {round(1 / _RANGES)} is a range, of objects of "
        f"{bytes_text(_LARGE_BYTES)} or more, of which clients take half or less"
    )
    if sizes.provenance != "learnt" or sizes.partial_ratio is None or sizes.sent_ratio is None:
        return Decision(
            id=ID,
            verdict="not_enough_evidence",
            summary="Whole objects are fetched: no log shows whether clients ask for ranges.",
            evidence=evidence,
            confidence="low",
            flips_when=[flips],
            next_command=LEARN_COMMAND,
        )
    takes = f"{percent_text(sizes.partial_ratio, 2)} of the answers are ranges, and clients take "
    takes += f"{percent_text(sizes.sent_ratio, 2)} of the bytes of what they ask for"
    is_large = (s.object_bytes.value or 0.0) >= _LARGE_BYTES
    if not is_large or sizes.partial_ratio < _RANGES or sizes.sent_ratio > _PART_TAKEN:
        return Decision(
            id=ID,
            verdict="disable",
            summary=f"Whole objects are fetched: {takes}; the mean one has "
            f"{bytes_text(s.object_bytes.value)}.",
            evidence=evidence,
            confidence="medium",
            flips_when=[flips],
        )
    size = slice_bytes(sizes.sent_mean_bytes or sizes.sent_ratio * (s.object_bytes.value or 0.0))
    why = "one part at a time"
    return Decision(
        id=ID,
        verdict="not_enough_evidence",
        summary=f"Parts of {nginx_size(size)} would be fetched, not whole objects, if the server "
        f"answers ranges and no object changes in place: {takes}.",
        proposed=[
            setting(ID, "location", "slice", nginx_size(size), reason=why),
            setting(
                ID, "location", "proxy_set_header", "Range", "$slice_range", reason="that part"
            ),
            setting(
                ID,
                "location",
                "proxy_cache_key",
                f"{key_of(s.site)}$slice_range",
                reason="and its key",
            ),
        ],
        evidence=evidence,
        confidence="low",
        flips_when=["the server answers a range with 206 and an ETag that stays"],
        risks=[
            "an object that changes while its parts are fetched ends in a cut answer",
            "all that the cache holds under another key is fetched anew",
        ],
        next_command=ASK_COMMAND,
    )


def slice_bytes(answer_bytes: float) -> int:
    """The part, a power of two from 1 to 16 MiB, of which answers of that size have eight or so."""
    wanted = max(SMALLEST_BYTES, min(LARGEST_BYTES, answer_bytes / PARTS))
    return 1 << int(math.log2(wanted))
