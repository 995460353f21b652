"""Open file descriptors kept in workers: the decision ``open-file-cache``."""

from __future__ import annotations

from dataclasses import dataclass

from nginx_tune.conf.locations import is_live_path
from nginx_tune.decide.answer import (
    FACTS_COMMAND,
    Quantity,
    known,
    not_applicable,
    setting,
    validate_command,
)
from nginx_tune.decide.descriptors import plan_descriptors
from nginx_tune.decide.model.cache import (
    PopularityClass,
    believed_ratio,
    hit_ratio,
    hit_ratio_after,
    zipf_classes,
)
from nginx_tune.decide.model.names import (
    RECHECK_SECONDS,
    forgets_names,
    open_seconds,
    request_seconds,
    shared_descriptor_seconds,
)
from nginx_tune.decide.pool_plan import PoolPlan
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import Decision, Evidence, Predicted
from nginx_tune.documents.site import Site
from nginx_tune.documents.units import percent_text

WORTH_RATIO = 0.2
"""Minimum share of opens that the cache must save. With a smaller share, most entries are evicted
unused."""
WORTH_OF_REQUEST = 0.05
"""Minimum share of a request's time in the loop that the cache must save; less is noise."""
WORTH_OF_LOOP = 1e-3
"""Minimum share of a loop's time to save at a known rate, which is the time of 200 warm opens a
second."""
FEWEST_ENTRIES = 1000
"""Minimum number of entries, since a site grows and unused entries take no memory."""
INACTIVE = "60s"
VALID_SECONDS = 3
"""``open_file_cache_valid``: time in seconds for which clients may still get a replaced or removed
file. A longer time hardly saves more, for files that are requested many times in these seconds."""
VALID = f"{VALID_SECONDS}s"
STALE = f"clients may get a replaced or removed file for up to {VALID}"

_WHAT_IS_OLD = (
    "GET after PUT returns the old body, GET after DELETE returns 200, and a playlist replaced by "
    "rename stays the old one"
)


def decide_open_file_cache(s: Situation, _plan: PoolPlan) -> Decision:
    """``open-file-cache``: open descriptors kept, because ``open()`` is never offloaded.

    Opening a file looks up every directory of its path, on disk where they are cold, and no
    released nginx does that in a thread pool. The cache keeps descriptors, sizes and times of
    recently used files in each worker and saves most opens. It costs descriptors, and until an
    entry is checked again clients get the old file: the old version of a replaced playlist or
    upload, status 200 for a removed file, and a truncated response for a file shortened in place.

    So it stays off where files change in use. Elsewhere it is written only where opens repeatedly
    read the disk, with entries that are valid for a few seconds. Where opens are warm it is only
    proposed, since no fact shows that files do not change.

    Its size follows from the number of files and from the descriptors that connections leave over.
    It stays off where most entries would be evicted before they are used again, and where there is
    little to save: a warm open() takes microseconds, which is nothing compared with sending a large
    file, or at a few requests a second. The cache has costs too. All readers of a file share one
    descriptor and its read-ahead state, which is slower when several read a large cold file at the
    same time. And each time a worker with threads outgrows its descriptor table, its loop waits
    some milliseconds for the other CPUs.
    """
    if s.kind == "proxy":
        return not_applicable("open-file-cache", "A proxy without a cache opens no files.")
    files = s.files
    budget = plan_descriptors(s).spare
    if not files.value:
        return Decision(
            id="open-file-cache",
            verdict="not_enough_evidence",
            summary="Left off: the number of requested files is not known.",
            confidence="low",
            flips_when=["the files requested again within a minute fit the descriptors"],
            next_command=FACTS_COMMAND,
        )
    plan = plan_open_files(s)
    saved = plan.saved_ratio
    evidence = known(
        files, s.exponent, Quantity("descriptors a worker can spare", budget, "descriptors")
    )
    predicted = [
        Predicted(
            metric="share of opens saved",
            low=round(saved * 0.5, 4),
            expected=round(saved, 4),
            high=min(1.0, round(saved * 1.2, 4)),
        )
    ]
    if plan.churns:
        return Decision(
            id="open-file-cache",
            verdict="disable",
            summary=f"Left off: {budget} descriptors for {files.text} would save "
            f"{percent_text(saved, 2)} of the opens.",
            evidence=evidence,
            predicted=predicted,
            confidence="medium",
            flips_when=[
                f"a worker can spare descriptors for {percent_text(WORTH_RATIO, 2)} of requests"
            ],
        )
    live = live_files(s.site)
    if live:
        return Decision(
            id="open-file-cache",
            verdict="keep",
            summary="Left off: files are replaced or removed while they are served "
            f"({', '.join(live[:2])}), and clients would get the old ones.",
            evidence=evidence,
            confidence="high",
            flips_when=["files never change under a name that clients request"],
        )
    if not plan.pays:
        return Decision(
            id="open-file-cache",
            verdict="keep",
            summary=f"Left off, nginx's default: {_why_off(plan)}.",
            evidence=evidence,
            predicted=predicted,
            confidence="medium" if files.provenance != "assumed" else "low",
            flips_when=["directories are so many or deep that lookups read the disk"],
        )
    return _kept_open(s, plan, evidence, predicted)


def _kept_open(
    s: Situation, plan: OpenFiles, evidence: list[Evidence], predicted: list[Predicted]
) -> Decision:
    """The cache as settings, or as a proposal if it would only save warm opens."""
    entries, saved = plan.entries, plan.saved_ratio
    reason = f"saves {percent_text(saved, 2)} of open() calls, which no pool offloads"
    lines = [
        setting(
            "open-file-cache",
            "http",
            "open_file_cache",
            f"max={entries}",
            f"inactive={INACTIVE}",
            reason=reason,
        ),
        setting(
            "open-file-cache",
            "http",
            "open_file_cache_valid",
            VALID,
            reason=f"{STALE}; the default is 60 s",
        ),
    ]
    is_sure = plan.is_sure
    return Decision(
        id="open-file-cache",
        verdict="enable" if is_sure else "not_enough_evidence",
        summary=f"Keep up to {entries} descriptors open in each worker: {reason}; {STALE}."
        if is_sure
        else f"Left off: {entries} descriptors in each worker would save {percent_text(saved, 2)} "
        f"of opens, which are warm and short, and {STALE}: set it only if files do not change in "
        "use.",
        settings=lines if is_sure else [],
        proposed=[] if is_sure else lines,
        evidence=evidence,
        predicted=predicted,
        confidence="medium" if is_sure else "low",
        flips_when=["files are edited, replaced or removed while clients request them"],
        risks=[
            f"{STALE}: {_WHAT_IS_OLD}",
            f"a file edited in place can be truncated for up to {VALID}: deploy by renaming",
        ],
        next_command=validate_command(s.facts),
    )


@dataclass(frozen=True)
class OpenFiles:
    """The effects of a worker's cache of descriptors."""

    entries: int
    saved_ratio: float
    """Share of the opens that it saves."""
    of_request: float
    """Time saved, as a share of a request's time in the loop."""
    of_loop: float | None
    """Time saved, as a share of all time; None without a rate."""
    forgotten: bool = False
    """True if opens repeatedly read the disk, so that it always pays to save them."""
    harms: bool = False
    """True if shared read-ahead state costs more time for cold files than saved opens gain."""

    counted: bool = True
    """True if the number of files is known rather than estimated."""
    shared: bool = False
    """True if other hosts can replace the files."""
    live: bool = False
    """True if files are replaced or removed while they are served."""

    @property
    def churns(self) -> bool:
        """True if most entries would be evicted before they are used again."""
        return self.saved_ratio < WORTH_RATIO

    @property
    def pays(self) -> bool:
        """True if the saved time is worth the cache."""
        enough = self.of_loop is None or self.of_loop >= WORTH_OF_LOOP
        worth = enough and self.of_request >= WORTH_OF_REQUEST
        return (worth or self.forgotten) and not self.churns and not self._costs

    @property
    def is_sure(self) -> bool:
        """True if the gain is certain: opens read the disk, and the number of files is known.

        Opens that do not read the disk cost at most a few percent of a request. Saving them is not
        worth stale files: a replaced picture is sent with its old length, lines appended to a log
        are not seen, and a site stays closed after its maintenance flag file was removed.
        """
        return self.pays and self.forgotten and self.counted

    @property
    def _costs(self) -> bool:
        return self.harms or self.shared or self.live


def plan_open_files(s: Situation) -> OpenFiles:
    """The size of a worker's cache of descriptors, with its effects."""
    files = s.files.value or 0.0
    entries = min(max(files, FEWEST_ENTRIES), plan_descriptors(s).spare) if files else 0.0
    if entries < 1:
        return OpenFiles(0, 0.0, 0.0, None)
    classes = zipf_classes(float(files), s.exponent.value or 0.0)
    saved = _saved(s, classes, float(entries))
    rate = s.rate.value
    asked = 0.0 if rate is None else rate / s.workers * VALID_SECONDS
    again = RECHECK_SECONDS * (1 - believed_ratio(classes, asked))
    seconds = saved * (open_seconds(s.blocking_inputs) - again)
    return OpenFiles(
        entries=int(entries),
        saved_ratio=saved,
        of_request=seconds / request_seconds(s.object_bytes.value or 0.0),
        of_loop=None if rate is None else rate / s.workers * seconds,
        forgotten=forgets_names(s.blocking_inputs, files),
        counted=s.files.provenance != "assumed",
        shared=s.others_replace_files,
        live=bool(live_files(s.site)),
        harms=shared_descriptor_seconds(s.blocking_inputs, _transfers(s)) > seconds,
    )


def _saved(s: Situation, classes: tuple[PopularityClass, ...], entries: float) -> float:
    """Share of opens that a cache of ``entries`` entries saves."""
    asked = s.workload.popularity
    if asked.once:
        return 0.0
    if asked.requests_seen is None:
        return hit_ratio(classes, entries)
    return hit_ratio_after(classes, entries, asked.requests_seen / s.workers, began_full=False)


def _transfers(s: Situation) -> float:
    """Concurrent transfers: as given, or else the cold transfers of a known rate."""
    if s.concurrency.provenance != "assumed" or s.rate.value is None:
        return s.concurrency.value or 0.0
    return 0.0 if s.prediction is None else s.prediction.cold_transfers


def _why_off(plan: OpenFiles) -> str:
    if plan.shared:
        return "files replaced by another host would be served stale"
    if plan.harms:
        return "cold files with several concurrent readers would lose their read-ahead"
    if plan.of_request < WORTH_OF_REQUEST:
        return f"it would save {percent_text(plan.of_request, 2)} of a request's time in the loop"
    return f"it would save {percent_text(plan.of_loop or 0.0, 2)} of a loop's time"


def live_files(site: Site) -> list[str]:
    """Files that change while in use: as declared, else locations and roots named so."""
    named = (*site.root_prefixes, *site.hot_locations, *site.roots)
    return site.live_files or [path for path in named if is_live_path(path)]


def open_files(s: Situation) -> int:
    """Descriptors that the cache will keep open in each worker."""
    if s.stays.open_files is not None:
        return s.stays.open_files
    if s.kind == "proxy":
        return 0
    plan = plan_open_files(s)
    return plan.entries if plan.is_sure else 0
