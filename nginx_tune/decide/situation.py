"""Facts, workload and site in the terms of the model, as the input of all decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nginx_tune.decide.answer import (
    ALL_AS_DECIDED,
    Build,
    Pinned,
    Quantity,
    build_of,
    effective_cpus,
    fastest_link,
    wanted_workers,
)
from nginx_tune.decide.cache_growth import (
    KEYS_SHARE,
    UNKNOWN_DISK,
    CacheHost,
    CacheSize,
    cache_size,
    keys_bytes,
    keys_taken_bytes,
)
from nginx_tune.decide.model.blocking import Prediction, predict
from nginx_tune.decide.model.cache import PopularityClass, curve_classes, zipf_classes
from nginx_tune.decide.model.disk import ModelDisk, disks_together
from nginx_tune.decide.model.inputs import BlockingInputs, CacheAge, since_empty
from nginx_tune.decide.model.reads import (
    SENDFILE_CHUNK_BYTES,
    ReadPath,
    SizeGroup,
    read_path,
    turn_bytes,
)
from nginx_tune.decide.objectives import Aim, aim_of
from nginx_tune.decide.observed import Seen, see
from nginx_tune.decide.storage import (
    AskedPlace,
    DataPath,
    asked_places,
    classes_of_places,
    data_paths,
    directories_of,
    disks_under,
    knee_of,
    models_under,
    on_network,
    on_shared_folder,
    page_waste_bytes,
    reads_by_disk,
    replaced_by_others,
    requests_by_disk,
    scanned_sizes,
)
from nginx_tune.documents.base import Provenance
from nginx_tune.documents.facts import Disk, Facts
from nginx_tune.documents.facts_storage import IN_MEMORY
from nginx_tune.documents.observation import Observation
from nginx_tune.documents.site import Site
from nginx_tune.documents.workload import Kind, Workload

_OF_THE_HOST = (
    "seen", "build", "workers", "page_cache", "data_paths", "disk", "disks_by_path", "disk_knee",
    "read_ahead_bytes", "link_bytes_per_second", "others_replace_files", "disks", "_asked_places",
    "_sizes",
)  # fmt: skip
"""Cached properties that stay valid for another workload with the same kind and the same requests
by directory."""


@dataclass(frozen=True)
class Situation:
    """One host, one workload, one site."""

    facts: Facts
    workload: Workload
    site: Site
    observation: Observation | None = None
    is_moved: bool = False
    """True if an assumed input is already at an end of its plausible range."""
    stays: Pinned = ALL_AS_DECIDED
    files_beside_bytes: float | None = None
    """Bytes of the files served in addition to the caches; None if they were not counted."""
    disk_workers: int | None = None
    """A number of workers below that of the CPUs, to give each enough threads for every disk."""

    def with_workload(self, workload: Workload) -> Situation:
        """The same host and site with another workload.

        Properties of the host are reused, since a break-even needs hundreds of situations.
        """
        moved = replace(self, workload=workload)
        asked = workload.dataset.requests_by_path
        if workload.kind == self.kind and asked == self.workload.dataset.requests_by_path:
            known = {name: self.__dict__[name] for name in _OF_THE_HOST if name in self.__dict__}
            moved.__dict__.update(known)
        return moved

    @cached_property
    def seen(self) -> Seen:
        """Figures observed on the running server."""
        return see(self.facts, self.observation)

    @property
    def kind(self) -> Kind:
        """The kind of site."""
        return self.workload.kind

    @cached_property
    def build(self) -> Build:
        """The target's nginx."""
        return build_of(self.facts.nginx)

    @property
    def is_linux(self) -> bool:
        """True on Linux, where all models were measured, or an unknown system."""
        return self.facts.kernel.system in (None, "Linux")

    @property
    def is_freebsd(self) -> bool:
        """True on FreeBSD, whose native AIO is good enough (source row A10)."""
        return self.facts.kernel.system == "FreeBSD"

    @cached_property
    def workers(self) -> int:
        """Worker processes: pinned, or as they will be configured."""
        return self.stays.workers or self.disk_workers or wanted_workers(self.facts)

    @property
    def workers_are_known(self) -> bool:
        """True if the number of workers is pinned, or follows from known CPUs."""
        return self.stays.workers is not None or effective_cpus(self.facts).value is not None

    @cached_property
    def page_cache(self) -> Quantity:
        """Bytes of file data that memory can hold for nginx."""
        memory = self.facts.memory
        if self.is_in_memory and self.data_paths[0].size_bytes is not None:
            return Quantity("size of the file system", self.data_paths[0].size_bytes, "bytes")
        if self._on_zfs and memory.arc_limit_bytes is not None:
            # ZFS reads past the page cache, into a cache of its own.
            return Quantity("memory.arc_limit_bytes", memory.arc_limit_bytes, "bytes")
        if memory.page_cache_limit_bytes is not None:
            limit = memory.page_cache_limit_bytes
            return Quantity("memory.page_cache_limit_bytes", limit, "bytes")
        return Quantity("memory.available_bytes", memory.available_bytes, "bytes")

    @property
    def is_in_memory(self) -> bool:
        """True if all data lies on file systems in memory."""
        return bool(self.data_paths) and all(p.filesystem in IN_MEMORY for p in self.data_paths)

    @property
    def _on_zfs(self) -> bool:
        places = self.data_paths
        return bool(places) and all(place.filesystem == "zfs" for place in places)

    @cached_property
    def data_paths(self) -> list[DataPath]:
        """The roots, or the cache directories, with the disks under them."""
        paths = self.site.cache_dirs if self.kind == "cache" else self.site.roots
        return data_paths(paths, self.facts.storage)

    @cached_property
    def disk(self) -> ModelDisk:
        """All disks under the data as one, weighted by their requests."""
        asked = self.workload.dataset.requests_by_path
        return self._together(requests_by_disk(self.data_paths, asked))

    def _together(self, shares: Mapping[str, float]) -> ModelDisk:
        models = self._models(self.disks, self.data_paths)
        # The model of disks that were measured together has the names of all of them.
        each = [sum(shares.get(name, 0.0) for name in model.name.split("+")) for model in models]
        return disks_together(models, each)

    def _models(self, disks: Sequence[Disk], places: Sequence[DataPath]) -> list[ModelDisk]:
        curves = self.facts.storage.shared_curves
        return models_under(disks, places, curves, self.link_bytes_per_second.value)

    @cached_property
    def _asked_places(self) -> tuple[AskedPlace, ...]:
        if self.kind == "cache":  # keys are spread evenly, and scans do not show future objects
            return ()
        asked = self.workload.dataset.requests_by_path
        return asked_places(self.data_paths, asked, self.facts.datasets)

    @cached_property
    def disks_by_path(self) -> list[ModelDisk]:
        """The disks under each data directory, combined into one."""
        known = {d.name: d for d in self.facts.storage.disks}
        return [
            disks_together(self._models(disks, [place]))
            for place in self.data_paths
            for disks in ([known[name] for name in place.leaf_disks if name in known],)
        ]

    @cached_property
    def disks(self) -> list[Disk]:
        """The disks under the data."""
        storage = self.facts.storage
        beside = self.site.roots if self.kind == "cache" and self.site.serves_files else []
        read = [*self.data_paths, *data_paths(beside, storage)]
        if self.network_filesystem is not None:
            return disks_under(read, storage)
        return disks_under(read, storage, scanned={d.path for d in self.facts.datasets})

    @cached_property
    def disk_knee(self) -> int | None:
        """Concurrent reads that the disks under the data serve; None unless all were measured."""
        return knee_of(self.disks, self.facts.storage.shared_curves)

    @cached_property
    def read_ahead_bytes(self) -> int:
        """Largest read-ahead window under the data: of the mounted devices, else of their disks."""
        mounted = max((p.read_ahead_bytes or 0 for p in self.data_paths), default=0)
        return mounted or max((d.read_ahead_bytes or 0 for d in self.disks), default=0)

    @cached_property
    def network_filesystem(self) -> str | None:
        """The network file system of the data or part of it; None if there is none."""
        return on_network(self.data_paths)

    @property
    def on_volumes(self) -> bool:
        """True if one of the disks under the data is behind a network."""
        return any(disk.class_ == "network" for disk in self.disks)

    @property
    def disks_are_typed(self) -> bool:
        """True if the speed of the disks follows from their class, to within a small factor."""
        kinds = {disk.class_ for disk in self.disks}
        return bool(kinds) and kinds <= {"hdd", "ssd", "nvme", "card", "memory"}

    @cached_property
    def others_replace_files(self) -> bool:
        """True if a root is on a network file system, where other hosts may write."""
        return replaced_by_others(self.site.roots, self.facts.storage)

    @cached_property
    def _sizes(self) -> tuple[SizeGroup, ...]:
        return scanned_sizes(self.facts.datasets)

    @cached_property
    def dataset_bytes(self) -> Quantity:
        """Bytes of data on disk; for a cache at most the size it may grow to."""
        data = self.workload.dataset
        known = Quantity("workload.dataset.bytes", data.bytes or None, "bytes", data.provenance)
        if self.kind != "cache":
            return known
        growth = self._cache_growth
        is_bound = known.value is None or (growth.value or math.inf) < known.value
        cached = growth if is_bound else known
        return self._with_files_beside(cached) if self.site.serves_files else cached

    def _with_files_beside(self, cached: Quantity) -> Quantity:
        """Data of the caches and of the files that are served in addition.

        If those files were not counted, the size is unknown, unless the caches alone exceed memory.
        """
        data = self.workload.dataset
        if data.bytes and data.provenance in ("declared", "learnt"):  # includes caches and files
            return Quantity("workload.dataset.bytes", data.bytes, "bytes", data.provenance)
        if self.files_beside_bytes is not None and cached.value is not None:
            name = "size the caches may grow to, with the files beside them"
            value = cached.value + self.files_beside_bytes
            return Quantity(name, value, "bytes", cached.provenance)
        memory = self.page_cache.value
        exceeds = cached.value is not None and memory is not None and cached.value > memory
        return cached if exceeds else Quantity("size of the files beside the caches", None, "bytes")

    @property
    def dataset_is_bounded(self) -> bool:
        """True if ``dataset_bytes`` is the size up to which a cache may grow."""
        return self.kind == "cache" and self.dataset_bytes is self._cache_growth

    @property
    def dataset_is_lower_bound(self) -> bool:
        """True if a scan ran out of time, so that there may be more data."""
        scanned = self.workload.dataset.provenance == "measured"
        return scanned and any(not d.complete for d in self.facts.datasets)

    def cache_size(self, place: DataPath) -> CacheSize:
        """The limits of one directory's cache, as declared or as they will be written."""
        host = CacheHost(
            self.facts,
            self.data_paths,
            keys_bytes(self.memory_bytes, self.page_cache.value),
            self.object_bytes,
            self.files.value,
        )
        return cache_size(host, place, self.site.cache_bounds.get(place.path))

    @cached_property
    def _cache_growth(self) -> Quantity:
        sizes = [self.cache_size(place) for place in self.data_paths]
        value = math.fsum(size.object_bytes for size in sizes) or None
        if any(size.why.startswith(UNKNOWN_DISK) for size in sizes):
            value = None  # our own limit is no evidence about the data
        is_firm = bool(sizes) and all(size.is_firm for size in sizes)
        source: Provenance = "declared" if is_firm else "assumed"
        return Quantity("size the caches may grow to", value, "bytes", source)

    @property
    def file_cache_bytes(self) -> float:
        """Page cache in bytes, minus the keys of new caches.

        The facts do not count the keys of existing caches as free memory.
        """
        cache, mean = self.page_cache.value or 0.0, self.object_bytes.value
        if self.kind != "cache" or not mean or not self.dataset_bytes.value:
            return cache
        new = [place for place in self.data_paths if place.path not in self.site.cache_bounds]
        zones = sum(self.cache_size(place).zone_mebibytes for place in new)
        taken = min(keys_taken_bytes(self.dataset_bytes.value / mean), zones * 2.0**20)
        return max((1 - KEYS_SHARE) * cache, cache - taken)

    @property
    def memory_bytes(self) -> int | None:
        """Memory that nginx may use: its cgroup's limit, else all of the host's."""
        return self.facts.memory.cgroup_limit_bytes or self.facts.memory.total_bytes

    @cached_property
    def aim(self) -> Aim:
        """The objectives that affect pools, chunk and buffers."""
        return aim_of(self.workload.objectives)

    @property
    def object_bytes(self) -> Quantity:
        """Mean size of a requested object."""
        sizes = self.workload.sizes
        return Quantity("workload.sizes.mean_bytes", sizes.mean_bytes, "bytes", sizes.provenance)

    @property
    def files(self) -> Quantity:
        """Files that clients may request."""
        data = self.workload.dataset
        return Quantity("workload.dataset.files", data.files, "files", data.provenance)

    @property
    def rate(self) -> Quantity:
        """Requests per second at the peak."""
        rate = self.workload.rate
        value = rate.peak_per_second or rate.mean_per_second
        return Quantity("workload.rate", value, "requests/s", rate.provenance)

    @property
    def concurrency(self) -> Quantity:
        """Requests in flight at the peak."""
        c = self.workload.concurrency
        return Quantity("workload.concurrency", c.peak or c.mean, "transfers", c.provenance)

    @property
    def cold_concurrency(self) -> Quantity:
        """Concurrent transfers that miss the page cache, where known."""
        c = self.workload.concurrency
        return Quantity("workload.concurrency.cold_peak", c.cold_peak, "transfers", c.provenance)

    @property
    def round_trip(self) -> Quantity:
        """Round trip to 90 % of the clients, in seconds."""
        trip = self.workload.round_trip
        fact = "workload.round_trip.p90_seconds"
        if trip.source:
            fact = f"{fact} ({trip.source})"
        return Quantity(fact, trip.p90_seconds, "s", trip.provenance)

    @property
    def client_rate(self) -> Quantity:
        """Bytes a second that a client receives."""
        c = self.workload.concurrency
        fact = "workload.concurrency.client_bytes_per_second"
        return Quantity(fact, c.client_bytes_per_second, "bytes/s", c.provenance)

    @property
    def connections_per_second(self) -> Quantity:
        """New client connections a second."""
        reuse = self.workload.connection_reuse
        rate = self.rate.value
        value = None if rate is None else rate / max(1.0, reuse.requests_per_connection or 1.0)
        return Quantity("new connections", value, "1/s", reuse.provenance)

    @property
    def requests_per_connection(self) -> Quantity:
        """Mean number of requests on a client connection."""
        reuse = self.workload.connection_reuse
        fact = "workload.connection_reuse.requests_per_connection"
        return Quantity(fact, reuse.requests_per_connection, "", reuse.provenance)

    @property
    def exponent(self) -> Quantity:
        """Zipf exponent of popularity."""
        p = self.workload.popularity
        return Quantity("workload.popularity.exponent", p.exponent, "", p.provenance)

    @property
    def tls(self) -> bool:
        """True if bodies are encrypted, so that sendfile cannot be used."""
        return self.workload.tls.value or self.site.tls is not None

    @cached_property
    def read_path(self) -> ReadPath:
        """The path of a body to the client, without kernel TLS (see the decision ``ktls``)."""
        return read_path(
            tls=self.tls,
            http_version=self.http_version,
            gzip=self.workload.gzip.value,
            sendfile=not (self.stays.no_sendfile or self.shared_folder),
        )

    @cached_property
    def shared_folder(self) -> str | None:
        """The type of a virtual machine's shared folder under the data; None if there is none."""
        paths = [*self.site.roots, *self.site.cache_dirs]
        return on_shared_folder(paths, self.facts.storage)

    @property
    def http_version(self) -> str:
        """The HTTP version of the clients: from the workload, else from the configuration."""
        version = self.workload.http_version
        is_listened = any("http2" in one.split() for one in self.site.listen)
        is_set = (self.site.cleartext_http2 or is_listened) and not self.tls
        return "2" if is_set and version.provenance == "assumed" else version.value

    @property
    def cleartext_http2(self) -> bool:
        """True if clients speak HTTP/2 without TLS, as a balancer in front may."""
        return self.http_version == "2" and not self.tls

    @cached_property
    def link_bytes_per_second(self) -> Quantity:
        """Speed of the fastest link."""
        return fastest_link(self.facts)

    def popularity_classes(
        self, dataset_bytes: float, exponent: float | None = None
    ) -> tuple[PopularityClass, ...]:
        """Popularity classes of a dataset; ``exponent`` replaces the workload's exponent."""
        popularity = self.workload.popularity
        mean = self.object_bytes.value or 1.0
        if popularity.curve and exponent is None:
            curve = [(point.requests_ratio, float(point.bytes)) for point in popularity.curve]
            return curve_classes(curve, mean, dataset_bytes)
        skew = (popularity.exponent or 0.0) if exponent is None else exponent
        objects = max(1.0, dataset_bytes / mean)
        if self._asked_places:
            return classes_of_places(self._asked_places, objects, skew)
        return zipf_classes(objects, skew)

    @cached_property
    def blocking_inputs(self) -> BlockingInputs | None:
        """The model's inputs; None where the size of data, objects or page cache is unknown."""
        dataset, cache, mean = self.dataset_bytes, self.page_cache, self.object_bytes
        if not dataset.value or cache.value is None or not mean.value:
            return None
        inputs = BlockingInputs(
            workers=self.workers,
            page_cache_bytes=self.file_cache_bytes,
            dataset_bytes=dataset.value,
            object_bytes=mean.value,
            classes=self.popularity_classes(dataset.value),
            disk=self.disk,
            read_bytes=float(self.read_path.task_bytes),
            window_bytes=float(self.read_path.window_bytes(self.read_ahead_bytes)),
            turn_bytes=float(turn_bytes(self.read_ahead_bytes)),
            goes_on_bytes=float(self.read_path.goes_on_bytes),
            sendfile_bytes=SENDFILE_CHUNK_BYTES if self.read_path.name == "sendfile" else 0.0,
            rate_per_second=self.rate.value,
            others_per_second=self.workload.rate.without_file_per_second or 0.0,
            concurrency=self.concurrency.value,
            since_seconds=self.workload.concurrency.since_seconds,
            cold_concurrency=self.cold_concurrency.value,
            cold_by_popularity=self.workload.concurrency.cold_by_popularity,
            think_seconds=self.workload.concurrency.think_seconds or 0.0,
            link_bytes_per_second=self.link_bytes_per_second.value,
            client_bytes_per_second=self.workload.concurrency.client_bytes_per_second,
            clients_keep_pace=self.workload.concurrency.clients_keep_pace,
            encrypts=self.tls and self.read_path.name == "buffers",
            sizes=self._sizes,
            page_waste_bytes=page_waste_bytes(self.facts.datasets, mean.value),
            names_take_memory=not self.facts.memory.names_apart,
            limit_seconds=self.aim.limit_seconds,
            limit_share=self.aim.limit_share,
            only_quantity=self.aim.only_quantity,
            directories=directories_of(self.facts.datasets),
            asked=CacheAge(
                self.workload.popularity.requests_seen,
                self.workload.popularity.began_full,
                self.workload.popularity.once,
            ),
        )
        if self._asked_places and (read := reads_by_disk(self._asked_places, inputs)):
            inputs = replace(inputs, disk=self._together(read))
        return since_empty(inputs) if self.workload.popularity.began_empty else inputs

    @cached_property
    def prediction(self) -> Prediction | None:
        """The model's prediction; None without its inputs."""
        return None if self.blocking_inputs is None else predict(self.blocking_inputs)

    def inputs_with_dataset(self, dataset_bytes: float) -> BlockingInputs | None:
        """The inputs with a dataset of another size and objects of the same size."""
        if self.blocking_inputs is None:
            return None
        classes = self.popularity_classes(dataset_bytes)
        return replace(self.blocking_inputs, dataset_bytes=dataset_bytes, classes=classes)
