"""One rule per file; ``registry`` lists them."""
