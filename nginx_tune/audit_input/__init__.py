"""What an audit reads: a tree by name, a dump, a revision, with facts."""
