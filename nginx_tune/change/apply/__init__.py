"""Changes to the operator's own nginx: kept, or taken back to the last byte."""
