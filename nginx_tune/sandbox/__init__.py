"""The sandbox around nginx: a new root with only listed files, few rights, few system calls."""
