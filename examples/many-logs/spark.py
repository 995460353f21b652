"""Learn from logs in object storage on the executors of a Spark cluster.

    spark-submit spark.py 's3://logs/2026/11/*.gz' s3://results/nginx learn.key > workload.json

Executors and driver need nginx-tune[s3], the same version, and learn.key at the same path.
"""

import subprocess
import sys

from fsspec.core import url_to_fs
from pyspark.sql import SparkSession

PATTERN, PARTIALS, KEY = sys.argv[1:]
LEARN = ["nginx-tune", "-q", "learn", "--key-file", KEY, "--partials", PARTIALS, "-f", "json"]


def keep(url: str) -> str:
    """Keep the partial result of one log; what went wrong, or nothing."""
    run = subprocess.run([*LEARN, url], capture_output=True, text=True, check=False)
    return f"{url}: exit {run.returncode}: {run.stderr}" if run.returncode else ""


def main() -> int:
    """Have the executors read what is missing, then add all here."""
    system, path = url_to_fs(PATTERN)
    urls = [system.unstrip_protocol(found) for found in system.glob(path)]
    context = SparkSession.builder.appName("nginx-tune learn").getOrCreate().sparkContext
    for failed in filter(None, context.parallelize(urls, len(urls)).map(keep).collect()):
        print(failed, file=sys.stderr)
    return subprocess.run([*LEARN, PATTERN], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
