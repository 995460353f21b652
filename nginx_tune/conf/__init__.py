"""nginx configuration: reads a tree of files, and finds the values in effect.

``tree.read_tree`` reads a configuration with its includes; ``scopes`` walks the blocks that handle
requests and gives effective values; ``variables`` gives the values that a variable can have.
The lexer is our own, after ngx_conf_read_token: the tree must accept whatever nginx accepts and
know the place of every word. crossplane, the usual parser, splits words at ``}`` and at Unicode
spaces and has no columns. It checks what ``generate`` and ``plan`` write (``second_reader``), and
the tests compare our parser with it where it is right.
"""
