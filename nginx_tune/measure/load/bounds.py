"""The bounds of a run: the caller's, which a load plan can only lower; pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nginx_tune.documents.loadplan import Caps, LoadPlan

CAP_NAMES = {
    "seconds": "seconds",
    "bytes": "bytes",
    "requests": "requests",
    "connections": "connections",
    "rate": "rate_per_second",
}
"""As callers name them."""


def plan_within(plan: LoadPlan, given: Mapping[str, float], *, allow_plan: bool) -> LoadPlan:
    """The plan with the bounds that hold for it.

    ``given`` are the caller's by name; the others are the defaults. A plan's own hold where they
    are lower, or all of them where ``allow_plan`` is set: a file may not lift what bounds it.
    """
    own = plan.caps
    bounds = {}
    for name, field in CAP_NAMES.items():
        callers = given.get(name, getattr(Caps(), field))
        theirs = getattr(own, field)
        bounds[field] = theirs if allow_plan and name not in given else min(callers, theirs)
        # A plan that says nothing has the defaults: the caller may be above these.
        if theirs == getattr(Caps(), field) and name in given:
            bounds[field] = callers
    return msgspec.structs.replace(plan, caps=msgspec.convert(bounds, Caps))
