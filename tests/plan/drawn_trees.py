"""Trees and hosts drawn at random, of what is written most: for laws that hold over all of them."""

import random

import msgspec
from situations import GIBIBYTE, MEBIBYTE, dataset, host, nginx

from nginx_tune.documents.facts import Facts, Kernel, Limits

FLAGS = [
    "--with-threads", "--with-http_ssl_module", "--with-http_v2_module", "--with-http_slice_module",
    "--with-http_gzip_static_module", "--with-http_stub_status_module", "--with-stream",
]  # fmt: skip
MAIN = (
    ("", "worker_processes 1;", "worker_processes 2;", "worker_processes auto;"),
    (
        "",
        "worker_rlimit_nofile 1024;",
        "worker_rlimit_nofile 8192;",
        "worker_rlimit_nofile 65535;",
        "worker_rlimit_nofile 2000000;",
    ),
)
EVENTS = (
    ("", "worker_connections 512;", "worker_connections 768;", "worker_connections 4096;",
     "worker_connections 65535;"),
    ("", "", "multi_accept on;", "accept_mutex on;"),
)  # fmt: skip
HTTP = (
    ("", "sendfile on;", "sendfile on; tcp_nopush on;", "sendfile off;"),
    ("", "", "sendfile_max_chunk 0;", "sendfile_max_chunk 500k;"),
    ("", "", "aio threads;"),
    ("", "", "output_buffers 1 32k;"),
    ("", "", "open_file_cache max=1000 inactive=20s;", "open_file_cache max=200000;"),
    ("", "access_log off;", "access_log /var/log/nginx/access.log;",
     "access_log /dev/stdout combined buffer=32k flush=5s;",
     "access_log /var/log/nginx/access.log combined buffer=64k flush=1s;"),
    ("", "keepalive_timeout 65;", "keepalive_timeout 0;"),
    ("", "", "gzip on; gzip_types text/css application/javascript;"),
    ("", "", "init_worker_by_lua_block { ngx.timer.every(5, tick) }"),
    ("", "", "limit_conn_zone $binary_remote_addr zone=per:10m;"),
    ("map $http_upgrade $connection_upgrade { default upgrade; '' close; }",),
    ("upstream app { server 10.0.0.5:8080; }",
     "upstream app { server 10.0.0.5:8080; server 10.0.0.6:8080; keepalive 16; }",
     "upstream app { zone app 64k; server 127.0.0.1:8080; keepalive 15; }"),
    ("proxy_cache_path /srv/cache keys_zone=pages:10m max_size=1g use_temp_path=off;",
     "proxy_cache_path /srv/cache keys_zone=pages:10m;",
     "proxy_cache_path /srv/cache levels=1:2 keys_zone=pages:1m max_size=972800m inactive=1d;"),
)  # fmt: skip
LISTEN = (
    "listen 80;", "listen 80 default_server;", "listen 80 reuseport;",
    "listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /k.pem;",
    "listen 443 ssl http2; ssl_certificate /c.pem; ssl_certificate_key /k.pem;",
)  # fmt: skip
ONE_ONE = 'proxy_http_version 1.1; proxy_set_header Connection "";'
UPGRADE = (
    "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; "
    "proxy_set_header Connection $connection_upgrade;"
)
BODIES = (
    "root /srv/1;", "root /srv/1; try_files $uri $uri/ =404;", "alias /srv/1/;", "return 204;",
    "root /srv/1; sendfile off;", "root /srv/1; directio 8m;", "root /srv/1; ssi on;",
    "proxy_pass http://app;", f"proxy_pass http://app; {ONE_ONE}",
    f"proxy_pass http://app; {UPGRADE}", "proxy_pass http://10.0.0.9:3000;",
    f"proxy_pass http://app; {ONE_ONE} proxy_cache pages; proxy_cache_valid 200 10m;",
    "proxy_pass http://app; client_max_body_size 5g; proxy_request_buffering off;",
    "fastcgi_pass unix:/run/php.sock; fastcgi_param SCRIPT_FILENAME $document_root/a.php;",
    "stub_status;", "proxy_pass http://app; limit_conn per 8;",
)  # fmt: skip


def drawn_tree(rng: random.Random) -> str:
    """A configuration in which every line stands by itself."""

    def some(choices: tuple[tuple[str, ...], ...]) -> str:
        return "\n    ".join(filter(None, map(rng.choice, choices)))

    http = some(HTTP)
    servers = []
    for number in range(rng.choice([1, 1, 2, 3])):
        bodies = [rng.choice(BODIES) for _ in range(rng.choice([1, 2, 3]))]
        if "zone=per:" not in http:
            bodies = [one.replace(" limit_conn per 8;", "") for one in bodies]
        locations = "".join(
            f"\n        location /{f'{at}/' if at else ''} {{ {body} }}"
            for at, body in enumerate(bodies)
        )
        servers.append(
            f"server {{\n        {rng.choice(LISTEN)}\n        server_name s{number}.example.com;"
            f"{locations}\n    }}"
        )
    return (
        f"{some(MAIN)}\nevents {{\n    {some(EVENTS)}\n}}\nhttp {{\n    {http}\n    "
        + "\n    ".join(servers)
        + "\n}\n"
    )


def drawn_host(rng: random.Random) -> Facts:
    """A host for it; what an operator runs most, and the odd one."""
    memory = rng.choice([1, 4, 16, 64]) * GIBIBYTE
    data = rng.choice([0.1, 0.5, 3, 20]) * memory
    file_bytes = rng.choice([16 << 10, MEBIBYTE, 64 * MEBIBYTE])
    facts = host(
        cpus=rng.choice([1, 2, 4, 16]),
        memory_bytes=memory,
        disk_class=rng.choice(["hdd", "ssd", "nvme", "virtual", "network"]),
        disks=rng.choice([1, 1, 2]),
        nginx=nginx(rng.choice(["1.18.0", "1.22.1", "1.26.3", "1.30.6"]), FLAGS),
        datasets=[dataset(int(data), file_bytes)] if rng.random() < 0.7 else [],
        kernel=Kernel(
            system="Linux", release="6.1.0", features={"epollexclusive": rng.random() < 0.9}
        ),
        limits=rng.choice(
            [
                Limits(nofile_soft=1024, nofile_hard=524288, nr_open=1 << 20),
                Limits(nofile_soft=1024, nofile_hard=1 << 20, nr_open=1 << 20, nofile_of="reader"),
                Limits(nofile_soft=65536, nofile_hard=65536, nr_open=1 << 20),
                Limits(),
                Limits(
                    nofile_soft=1024,
                    nofile_hard=20000,
                    nr_open=1 << 20,
                    nofile_of="nginx",
                    can_raise=False,
                ),
            ]
        ),
    )
    filesystem = rng.choice(["ext4", "ext4", "xfs", "zfs", "nfs4", "vboxsf"])
    paths = [msgspec.structs.replace(one, filesystem=filesystem) for one in facts.storage.paths]
    paths.append(msgspec.structs.replace(paths[0], path="/srv/cache", mount_point="/srv/cache"))
    return msgspec.structs.replace(
        facts, storage=msgspec.structs.replace(facts.storage, paths=paths)
    )
