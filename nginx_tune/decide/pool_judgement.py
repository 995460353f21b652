"""The verdict on thread pools: from conditions that rule them out, measured reads or the model."""

import math
import shlex
from dataclasses import dataclass, replace

from nginx_tune.decide.answer import (
    BUILD_COMMAND,
    FACTS_COMMAND,
    LEARN_COMMAND,
    VERSION_COMMAND,
    Quantity,
)
from nginx_tune.decide.model.blocking import (
    BUSY_HOST_SECONDS,
    OFFLOAD_SECONDS,
    Prediction,
    predict,
    predict_measured,
)
from nginx_tune.decide.model.inputs import BlockingInputs
from nginx_tune.decide.model.reads import SizeGroup
from nginx_tune.decide.model.sending import send_seconds
from nginx_tune.decide.situation import Situation
from nginx_tune.documents.decisions import DecisionVerdict
from nginx_tune.documents.units import listed, percent_text


@dataclass(frozen=True)
class PoolJudgement:
    """The verdict on thread pools, with a reason that fits into a comment."""

    verdict: DecisionVerdict
    reason: str
    flips: str = ""
    """A change outside the model that would flip the verdict, as text."""
    needs_measurement: bool = False
    """True if pools would pay, but an assumed input could flip the verdict."""
    next_command: str = ""
    """The command that measures the decisive input."""


def judge_pools(s: Situation) -> PoolJudgement:
    """The judgement on thread pools, by exclusions or else by the model."""
    ruled_out = _ruled_out(s)
    if ruled_out is not None:
        return ruled_out
    if s.blocking_inputs is None or s.prediction is None:
        return PoolJudgement("not_enough_evidence", _missing(s))
    if s.rate.value is None and s.concurrency.value is None and s.seen.blocked.value is None:
        return PoolJudgement("not_enough_evidence", "neither request rate nor concurrency is known")
    blocked = s.seen.blocked_without_pools
    if blocked is not None:
        share = f"disk reads block workers {percent_text(blocked, 2)} of the time (measured)"
        if predict_measured(s.blocking_inputs, blocked).pools_pay:
            return PoolJudgement("enable", share)
        return PoolJudgement("disable", f"{share}, which costs less than offloading every read")
    if s.blocking_inputs.miss_ratio <= 0 and s.dataset_is_lower_bound:
        return PoolJudgement(
            "not_enough_evidence", "the scan of the data did not finish in its time"
        )
    return _judge_reads(s, s.blocking_inputs, s.prediction)


def _judge_reads(s: Situation, i: BlockingInputs, p: Prediction) -> PoolJudgement:
    """The judgement by the model, for data of known size."""
    cache, data = s.page_cache.text, f"{s.dataset_bytes.text} of data"
    if short := s.workload.dataset.short_log_bytes:
        data += f" ({Quantity('', short, 'bytes').text} of it in a log of less than a day)"
    if p.turns_are_felt:
        waits = turns_text(p)
        why = f"large responses are read and sent in one turn, and {waits} behind them"
        return _unless_assumed(s, PoolJudgement("enable", why))
    if i.miss_ratio <= 0:
        return PoolJudgement("disable", _fitting(s))
    if s.network_filesystem is not None:
        why = f"{data}, {cache} of page cache: misses are read from {s.network_filesystem}"
        return _of_known_build(
            s, PoolJudgement("enable", f"{why}, and a stalled server would block whole workers")
        )
    if p.pools_pay:
        why = f"{data}, {cache} of page cache: misses block the loop{_others_wait(s)}"
        return _unless_assumed(s, PoolJudgement("enable", why))
    if p.hot_on_seconds <= p.hot_off_seconds and pools_lose_less(s):
        why = f"{data}, {cache} of page cache: misses block the loop"
        return _of_known_build(s, _by_regret(s, why))
    unsure = ""
    if not s.is_moved and disks_decide(s):
        unsure = ", if the disks are typical of their class; slower ones would flip that"
    return PoolJudgement(
        "disable",
        f"waiting for misses costs less than offloading every read ({data}, {cache} of "
        f"page cache){unsure}",
    )


def _fitting(s: Situation) -> str:
    """A clause on data that fits in the page cache, with the data on disk that a log leaves out."""
    data = s.dataset_bytes
    sizes = f"{data.text} of {s.page_cache.text}"
    scanned = math.fsum(scan.bytes or 0 for scan in s.facts.datasets)
    if s.dataset_is_bounded:
        what = "the full cache fits"
    elif data.fact.startswith("size the caches"):
        what = "the full cache, with the files beside it, fits"
    elif data.provenance == "learnt":
        what = "the data requested in the log fits"
        if scanned > (data.value or 0.0):
            sizes += f"; {Quantity('', scanned, 'bytes').text} on disk"
    else:
        what = "dataset fits"
    return f"{what} in the page cache ({sizes})"


def turns_text(p: Prediction) -> str:
    """A clause on the wait behind large responses that are sent in one turn."""
    if p.turn_wait_seconds > BUSY_HOST_SECONDS:
        return f"others wait {Quantity('', p.turn_wait_seconds, 's').text}"
    return f"one in a hundred other requests waits {Quantity('', p.turn_p99_seconds, 's').text}"


def _others_wait(s: Situation) -> str:
    if s.prediction is None or not s.prediction.only_others:
        return ""
    if s.prediction.is_late:
        share = percent_text(s.prediction.blocked_ratio, 2)
        return f" {share} of the time, for longer than {s.aim.limit_text} allows"
    waits = Quantity("", s.prediction.wait_off_seconds, "s").text
    return f", and requests without a file wait {waits} behind them"


def _of_known_build(s: Situation, paying: PoolJudgement) -> PoolJudgement:
    """The judgement; pools are only proposed if the build is not known."""
    if s.build.flags is None:
        return PoolJudgement(
            "not_enough_evidence",
            f"{paying.reason}, but it is not known whether this nginx is built --with-threads; "
            "without that it rejects the directive",
            needs_measurement=True,
            next_command=VERSION_COMMAND if s.facts.declared else BUILD_COMMAND,
        )
    return paying


def _unless_assumed(s: Situation, paying: PoolJudgement) -> PoolJudgement:
    """The judgement; pools are only proposed if an assumed input could flip it (``keep_law``)."""
    known = _of_known_build(s, paying)
    if known is not paying or s.is_moved or not flips_on_assumptions(s):
        return known
    if pools_lose_less(s):
        return _by_regret(s, paying.reason)
    assumed = assumptions(s)
    names = listed([name for name, _ in assumed])
    return PoolJudgement(
        "not_enough_evidence",
        f"{paying.reason}, if {names} {'is' if len(assumed) == 1 else 'are'} as assumed; other "
        "plausible values flip the verdict",
        needs_measurement=True,
        next_command=assumed[0][1],
    )


_NEAR = 0.8
"""Ratio of data to page cache from which the data counts as near the size of memory."""


def pools_lose_less(s: Situation) -> bool:
    """True if pools have the smaller expected regret over unmeasured disks and unknown clients.

    False unless the demand is known, the data is near the size of memory or above it, and the disks
    or the clients can flip the verdict. The slowest, the typical and the fastest disk of the class
    have equal weights, and so have slow clients and clients that keep pace. The regret of a choice
    is the logarithm of the ratio of a response's time to that with the other choice, averaged over
    the files.
    Source: 222 kept cells, replayed with typical disks (benchmarks/regret/replayed.py).
    """
    i, p = s.blocking_inputs, s.prediction
    if i is None or p is None or not (disks_decide(s) or pace_decides(s)):
        return False
    demand = (s.dataset_bytes, s.exponent, s.concurrency if s.rate.value is None else s.rate)
    if any(quantity.provenance == "assumed" for quantity in demand):
        return False
    if (s.dataset_bytes.value or 0.0) < _NEAR * (s.page_cache.value or math.inf):
        return False
    factors = i.disk.plausible_factors if s.disk.provenance == "assumed" else ()
    paces = [i.clients_keep_pace, *([True] if _pace_is_unknown(s, i) else [])]
    cases = [
        replace(i, disk=i.disk.scaled(factor), clients_keep_pace=pace)
        for factor in (1.0, *factors)
        for pace in paces
    ]
    return sum(map(_regret_of_pools, cases)) < 0


def _regret_of_pools(i: BlockingInputs) -> float:
    """The regret of pools: the price is the large responses', but all others wait without pools."""
    p = predict(i)
    regret = 0.0
    for group in i.sizes or (SizeGroup(1.0, 1.0),):
        size = group.over_mean * i.object_bytes
        sent = BUSY_HOST_SECONDS + send_seconds(i, size)
        price = OFFLOAD_SECONDS * p.margin * max(1.0, size / i.read_bytes)
        waits = p.wait_off_seconds * max(1.0, size / i.longest_hold_bytes) + p.turn_wait_seconds
        regret += group.share * (math.log(sent + price) - math.log(sent + waits))
    return regret


def _by_regret(s: Situation, why: str) -> PoolJudgement:
    unknown = ["the disks were not measured"] if disks_decide(s) else []
    unknown += ["the speed of the clients is not known"] if pace_decides(s) else []
    reason = f"{why}; {listed(unknown)}, and pools are the safer choice"
    command = measure_disks(s) if disks_decide(s) else ""
    return PoolJudgement("enable", reason, next_command=command)


def _ruled_out(s: Situation) -> PoolJudgement | None:
    build = s.build
    if s.stays.no_pools:
        return PoolJudgement("not_applicable", f"they need {s.stays.no_pools}")
    if s.is_in_memory:
        return PoolJudgement(
            "disable",
            f"the data is in memory ({s.data_paths[0].filesystem}), where no read waits",
            flips="the data moves to a disk",
        )
    if s.is_freebsd:
        return PoolJudgement("not_applicable", "FreeBSD's asynchronous I/O does not block the loop")
    if not s.is_linux:
        return PoolJudgement("not_applicable", f"not measured on {s.facts.kernel.system}")
    if not build.at_least(1, 7, 11):
        return PoolJudgement(
            "not_applicable",
            f"nginx {build.text} has no thread pools",
            flips="nginx is 1.7.11 or newer",
        )
    if build.lacks("--with-threads"):
        return PoolJudgement(
            "not_applicable",
            "this nginx is built without --with-threads",
            flips="nginx is built with --with-threads",
        )
    if s.kind == "proxy":
        return PoolJudgement(
            "not_applicable", "a proxy without a cache serves no files", flips="the kind is cache"
        )
    if build.version is not None and (1, 9, 13) <= build.version < (1, 11, 4):
        return PoolJudgement(
            "not_applicable",
            f"nginx {build.text} can send wrong bodies with aio threads and sendfile",
            flips="nginx is 1.11.4 or newer",
        )
    if s.cleartext_http2 and not build.at_least(1, 21, 5):
        return PoolJudgement(
            "not_applicable",
            f"nginx {build.text} can hang with cleartext HTTP/2, sendfile and aio",
            flips="nginx is 1.21.5 or newer",
        )
    return None


def _missing(s: Situation) -> str:
    if not s.dataset_bytes.value:
        return "the size of the data is not known"
    if s.page_cache.value is None:
        return "the size of the page cache is not known"
    return "the size of an object is not known"


def flips_on_assumptions(s: Situation) -> bool:
    """True if thread pools pay with some plausible inputs and not with others."""
    if s.blocking_inputs is None or s.prediction is None:
        return False
    pay = s.prediction.pools_pay
    return any(predict(case).pools_pay != pay for case in corners(s, s.blocking_inputs))


def assumptions(s: Situation) -> list[tuple[str, str]]:
    """Assumed inputs of the model, each with the command that supplies it."""
    found = [
        ("the size of the data", s.dataset_bytes.provenance, FACTS_COMMAND),
        ("the popularity of the files", s.exponent.provenance, LEARN_COMMAND),
        ("the number of transfers", s.concurrency.provenance, LEARN_COMMAND),
        ("the speed of the disks", s.disk.provenance, measure_disks(s)),
    ]
    if disks_decide(s):  # first: it takes ten seconds, the others need days of logs
        found.insert(0, found.pop())
    return [(name, command) for name, provenance, command in found if provenance == "assumed"]


def disks_decide(s: Situation) -> bool:
    """True if plausible speeds of unmeasured disks alone flip the verdict."""
    i = s.blocking_inputs
    if i is None or s.prediction is None or s.disk.provenance != "assumed":
        return False
    pay = s.prediction.pools_pay
    return any(
        predict(replace(i, disk=i.disk.scaled(factor))).pools_pay != pay
        for factor in i.disk.plausible_factors
    )


def pace_decides(s: Situation) -> bool:
    """True if the verdict depends on clients of unknown speed: with fast ones, pools pay."""
    i, p = s.blocking_inputs, s.prediction
    if i is None or p is None or not _pace_is_unknown(s, i):
        return False
    return not p.pools_pay and predict(replace(i, clients_keep_pace=True)).turns_are_felt


def _pace_is_unknown(s: Situation, i: BlockingInputs) -> bool:
    """True unless somebody said how fast the clients are, or loops were watched; no log says it."""
    is_said = s.workload.concurrency.provenance == "declared" or s.seen.blocked.value is not None
    return not (is_said or i.clients_keep_pace or i.client_bytes_per_second is not None)


def measure_disks(s: Situation) -> str:
    """The command that measures the disks under the data, ten seconds each.

    Network volumes need ``--force``: some are billed by the read.
    """
    force = " --force" if s.network_filesystem is not None or s.on_volumes else ""
    command = "nginx-tune inspect --dataset DIR --disks --disk-seconds 10"
    return with_places(s, f"{command}{force} -f json -o facts.json")


def with_places(s: Situation, command: str) -> str:
    """The command with the site's directories and access logs instead of DIR and ACCESS_LOG.

    The directories of a described host are placeholders themselves, so they are not named.
    """
    option = "--cache-dir" if s.kind == "cache" else "--dataset"
    paths = [] if s.facts.declared else [place.path for place in s.data_paths]
    words = [f"{option} {shlex.quote(path)}" for path in paths]
    if s.kind == "cache" and s.site.serves_files and not s.facts.declared:
        words += [f"--dataset {shlex.quote(root)}" for root in s.site.roots]
    places = " ".join(words or [f"{option} DIR"])
    command = command.replace("--dataset DIR", places)
    if s.facts.declared or not (logs := s.site.log_paths):
        return command
    return command.replace("ACCESS_LOG", shlex.join(logs))


def corners(s: Situation, i: BlockingInputs) -> list[BlockingInputs]:
    """The inputs with all assumed values at the ends that block least, then most.

    The verdict is monotonic in each input, so no value in between is more extreme.
    Shape: two inputs; empty if nothing is assumed.
    """
    easier = harder = i
    if s.dataset_bytes.provenance == "assumed" and s.dataset_bytes.value:
        easier = s.inputs_with_dataset(s.dataset_bytes.value / 2) or i
        if not s.dataset_is_bounded:
            harder = s.inputs_with_dataset(s.dataset_bytes.value * 2) or i
    if s.exponent.provenance == "assumed" and s.exponent.value is not None:
        flat, steep = max(0.0, s.exponent.value - 0.3), s.exponent.value + 0.3
        easier = replace(easier, classes=s.popularity_classes(easier.dataset_bytes, steep))
        harder = replace(harder, classes=s.popularity_classes(harder.dataset_bytes, flat))
    if s.concurrency.provenance == "assumed" and i.concurrency is not None:
        easier = replace(easier, concurrency=i.concurrency / 4)
        harder = replace(harder, concurrency=i.concurrency * 4)
    if s.disk.provenance == "assumed":
        best, worst = i.disk.plausible_factors
        easier = replace(easier, disk=i.disk.scaled(best))
        harder = replace(harder, disk=i.disk.scaled(worst))
    return [] if easier is i and harder is i else [easier, harder]
