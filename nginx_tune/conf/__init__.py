"""nginx configuration: read a tree of files, and say what holds where.

``tree.read_tree`` reads a configuration with its includes; ``scopes`` walks the places where
requests are answered and gives effective values; ``variables`` says what a variable can be.

The lexer is our own, after ngx_conf_read_token: the tree must accept whatever nginx accepts and
know the place of every word. crossplane, the parser in the field, splits words at ``}`` and at
Unicode spaces and knows no columns. It is the second reader of what ``generate`` and ``plan``
write (``second_reader``), and the tests hold it beside ours where it is right.
"""
