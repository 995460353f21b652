"""The sandbox around nginx: a new root by a positive list, few rights, few system calls."""
