"""One rule a file; ``registry`` lists them."""
