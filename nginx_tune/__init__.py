"""nginx-tune: which of nginx's I/O and concurrency switches help on this host, with proof."""

__version__ = "0.1.0"
