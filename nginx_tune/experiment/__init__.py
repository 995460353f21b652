"""Arms, what each is asked, and the blocks in the sandbox that a verdict stands on."""
