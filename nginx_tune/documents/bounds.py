"""What numbers documents that people write may hold: as types, which reading a document checks.

A document that says anything else is refused by the field's name; the JSON Schema says the same.
What our own commands write lies well inside. ``decide/plausible.py`` goes by the same numbers
where a document was not read but made.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MOST_BYTES = 1 << 60
MOST_COUNT = 1 << 50
MOST_SECONDS = 1 << 32
"""136 years."""
STEEPEST = 5.0
"""Zipf exponents beyond this put everything on one object."""

Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
MeanBytes = Annotated[float, Meta(ge=0, le=MOST_BYTES)]
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
OneOrMore = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
Number = Annotated[float, Meta(ge=0, le=MOST_COUNT)]
"""A rate, a mean of counts, a share in proportion."""
MeanOfOneOrMore = Annotated[float, Meta(ge=1, le=MOST_COUNT)]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
WholeSeconds = Annotated[int, Meta(ge=0, le=MOST_SECONDS)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
"""A share of a whole."""
Exponent = Annotated[float, Meta(ge=0, le=STEEPEST)]

AtMostBytes = Annotated[int, Meta(le=MOST_BYTES)]
AtMostCount = Annotated[int, Meta(le=MOST_COUNT)]
AtMostNumber = Annotated[float, Meta(le=MOST_BYTES)]
AtMostSeconds = Annotated[float, Meta(le=MOST_SECONDS)]
"""Of labs and scenarios, whose own checks say what is too little, in the words of each field."""
