"""Arms, what each is asked, and the runs in the sandbox that a verdict stands on."""
