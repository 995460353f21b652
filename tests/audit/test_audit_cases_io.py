"""Where the rules about file I/O must speak, must be silent, or must say what they lack."""

from cases import outcome
from msgspec.structs import replace
from rows import each_row

from nginx_tune.audit.rule import linux
from nginx_tune.documents.facts import Dataset, Facts, Kernel, PathStorage, Storage

COLD = linux(datasets={"/srv/media": (256, 0.1)})
SHARED = replace(
    linux(), storage=Storage(paths=[PathStorage(path="/srv/media", filesystem="vboxsf")])
)
FREEBSD = Facts(kernel=Kernel(system="FreeBSD"))


def site(location: str, http: str = "", main: str = "", listen: str = "80") -> str:
    return (
        f"{main} events {{}} http {{ {http} server {{ listen {listen};"
        f" location / {{ root /srv/media; {location} }} }} }}"
    )


def split(key: str, parts: str, use: str) -> str:
    conf = site("", f"split_clients {key} $disk {{ {parts} }}")
    return conf.replace("root /srv/media;", use)


POOL = "thread_pool media threads=4;"
CACHE = "proxy_cache_path /mnt/disk%s keys_zone=c%s:9m;"
CACHES = CACHE % (1, 1) + CACHE % (2, 2)

CASES: dict[str, tuple[str, str, Facts | None, int | str]] = {
    "a pool that a request can name": (
        "io-pool-unused", site("aio threads=$arg_p;", "", POOL), None, 0,
    ),
    "a pool for another module": (
        "io-pool-unused", site("vod_open_file_thread_pool media;", "", POOL), None, 0,
    ),
    "aio sendfile on Linux": (
        "io-aio-on-not-built", site("aio sendfile;"), linux(version="1.18.0"), 1,
    ),
    "aio sendfile is one rule's matter": (
        "cf-parameter-unknown", site("aio sendfile;"), linux(version="1.28.0"), 0,
    ),
    "aio on before there were threads": (
        "cf-parameter-unknown", site("aio on; directio 8m;"),
        linux(version="1.6.3", flags=("--with-file-aio",)), 0,
    ),
    "aio sendfile somewhere": (
        "io-aio-on-not-built", site("aio sendfile;"), None, "kernel.system",
    ),
    "aio on without directio on FreeBSD": ("io-aio-on-no-directio", site("aio on;"), FREEBSD, 0),
    "aio on without directio somewhere": (
        "io-aio-on-no-directio", site("aio on;"), None, "kernel.system",
    ),
    "aio on beside directio off": (
        "io-aio-on-no-directio", site("aio on; directio off;"), COLD, 1,
    ),
    "directio over a cache": (
        "io-directio-no-aio", site("directio 1m; proxy_pass http://b; proxy_cache c1;", CACHES),
        None, 0,
    ),
    "directio off": ("io-directio-no-aio", site("directio off;"), None, 0),
    "directio over a set nobody has counted": (
        "io-directio-dataset-fits", site("directio 1m;"), linux(), "datasets[/srv/media].bytes",
    ),
    "disks that were not measured": (
        "io-pool-threads-over-knee",
        site("aio threads=media;", "", "thread_pool media threads=4000;"),
        linux(disks={"/srv/media": ("sda", "hdd")}), 0,
    ),
    "an experiment with a rest that gets nothing": (
        "io-split-no-default", site("add_header X $v;", "split_clients $uri $v { 10% a; }"), None,
        0,
    ),
    "parts that make up the whole": (
        "io-split-no-default", split("$uri", "50% 1; 50% 2;", "root /mnt/disk$disk;"), None, 0,
    ),
    "parts that nearly make up the whole": (
        "io-split-no-default",
        split("$uri", "33.33% 1; 33.33% 2; 33.33% 3;", "root /mnt/disk$disk;"), None, 1,
    ),
    "a cache without a name": (
        "io-split-no-default",
        site(
            "proxy_pass http://b; proxy_cache c$disk;",
            CACHES + "split_clients $uri $disk { 50% 1; 40% 2; }",
        ),
        None,
        1,
    ),
    "two parts on one disk": (
        "io-split-disk-missing", split("$uri", "50% 1; * 2;", "root /mnt/disk$disk;"),
        linux(disks={"/mnt/disk1": ("sda", "hdd"), "/mnt/disk2": ("sda", "hdd")}), 1,
    ),
    "the path and its arguments are the cache key": (
        "io-split-key-args",
        site(
            "proxy_pass http://b; proxy_cache c$disk; proxy_cache_key $host$uri$is_args$args;",
            CACHES + "split_clients $request_uri $disk { 50% 1; * 2; }",
        ),
        None,
        0,
    ),
    "the path alone is the cache key": (
        "io-split-key-args",
        site(
            "proxy_pass http://b; proxy_cache c$disk; proxy_cache_key $host$uri;",
            CACHES + "split_clients $request_uri $disk { 50% 1; * 2; }",
        ),
        None,
        1,
    ),
    "the path follows from the default cache key": (
        "io-split-key-args",
        site(
            "proxy_pass http://b; proxy_cache c$disk;",
            CACHES + "split_clients $uri $disk { 50% 1; * 2; }",
        ),
        None,
        0,
    ),
    "the client is no part of the cache key": (
        "io-split-key-args",
        site(
            "proxy_pass http://b; proxy_cache c$disk;",
            CACHES + "split_clients $remote_addr $disk { 50% 1; * 2; }",
        ),
        None,
        1,
    ),
    "kTLS over files that fit": (
        "io-ktls-bypasses-pool",
        site("aio threads;", "sendfile on; ssl_conf_command Options KTLS;", listen="443 ssl"),
        linux(datasets={"/srv/media": (3, 1.0)}, features={"tls": True}), 0,
    ),
    "another command for OpenSSL": (
        "io-ktls-bypasses-pool",
        site("aio threads;", "sendfile on; ssl_conf_command Options -Tickets;", listen="443 ssl"),
        linux(datasets={"/srv/media": (256, 0.1)}, features={"tls": True}), 0,
    ),
    "small files over TLS": (
        "io-tls-small-output-buffers", site("aio threads;", listen="443 ssl"),
        linux(datasets={"/srv/media": (256, 0.1)}, mean_file_bytes=40_000), 0,
    ),
    "an unbuffered proxy writes no files": (
        "io-aio-write-missing", site("proxy_pass http://b; aio threads; proxy_buffering off;"),
        linux(), 0,
    ),
    "a proxy without temporary files": (
        "io-aio-write-missing",
        site("proxy_pass http://b; aio threads; proxy_max_temp_file_size 0;"), linux(), 0,
    ),
    "slices from an upstream over TLS before 1.25.4": (
        "io-aio-buggy-version", site("proxy_pass https://b; slice 1m; aio threads;"),
        linux(version="1.25.3"), 1,
    ),
    "aio off has no faults": (
        "io-aio-buggy-version", site("aio off;", "sendfile on;", listen="80 http2"),
        linux(version="1.18.0"), 0,
    ),
    "an open_file_cache that is looked at often": (
        "io-open-cache-inplace", site("open_file_cache max=9; open_file_cache_valid 5m;"), None,
        0,
    ),
    "no open_file_cache at all": (
        "io-open-cache-inplace", site("open_file_cache_valid 1d;"), None, 0,
    ),
    "a cache under limits nobody has read": (
        "io-open-cache-fd-budget", site("open_file_cache max=9;"), None, "limits.nofile_soft",
    ),
    "files on a shared folder": ("io-sendfile-off-static", site("sendfile off;"), SHARED, 0),
    "files of which few are read with directio": (
        "io-sendfile-off-static", site("directio 8m; aio threads;"), COLD,
        "storage.paths[/srv/media]",
    ),
    "files with directio": ("io-sendfile-off-static", site("directio 1m; aio threads;"), COLD, 0),
    "gzip for every type of small files": (
        "io-sendfile-defeated", site("gzip on; gzip_types *;", "sendfile on;"),
        linux(datasets={"/srv/media": (256, 0.1)}, mean_file_bytes=9_000), 0,
    ),
    "gzip off for every type": (
        "io-sendfile-defeated", site("gzip off; gzip_types *;", "sendfile on;"),
        linux(datasets={"/srv/media": (256, 0.1)}, mean_file_bytes=4 << 20), 0,
    ),
    "read_ahead 0": ("io-read-ahead-random", site("mp4; read_ahead 0;"), linux(), 0),
    "disable_symlinks off": ("io-symlink-check", site("disable_symlinks off;"), None, 0),
    "two candidates": ("io-try-files-no-cache", site("try_files $uri $uri/ /index.php;"), None, 0),
    "a dataset that is not there": (
        "io-split-disk-missing",
        split("$uri", "50% 1; * 2;", "root /mnt/disk$disk;"),
        replace(
            linux(disks={"/mnt/disk1": ("sda", "hdd")}),
            datasets=[Dataset(path="/mnt/disk2", files=0, bytes=0, reason="no such directory")],
        ),
        1,
    ),
}  # fmt: skip


@each_row("name", CASES)
def test_case(name: str) -> None:
    rule, conf, facts, expected = CASES[name]
    assert outcome(rule, conf, facts) == expected
