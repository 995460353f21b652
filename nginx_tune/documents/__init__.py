"""The typed documents that flow through nginx-tune; imports nothing else of ours but errors."""
