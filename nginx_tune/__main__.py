"""``python -m nginx_tune``."""

from nginx_tune.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
