"""Media types by what a filter can make of them."""

from __future__ import annotations

COMPRESSED = frozenset(
    {
        "image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp", "image/avif",
        "application/zip", "application/gzip", "application/x-gzip", "application/x-rar-compressed",
        "application/x-7z-compressed", "font/woff", "font/woff2", "application/font-woff",
        "application/font-woff2", "application/x-font-woff", "video/mp4", "video/webm",
        "audio/mpeg", "audio/ogg", "audio/mp4",
    }
)  # fmt: skip
"""What gzip cannot make smaller."""
OLDER_FONTS = frozenset(
    {"application/font-woff", "application/font-woff2", "application/x-font-woff"}
)
"""What WOFF files were sent as before ``conf/mime.types`` of nginx 1.15.1 said font/woff."""
FONTS_RENAMED = (1, 15, 1)
EVENT_STREAM = "text/event-stream"
"""What gzip holds back: a buffered answer is flushed by nobody."""
