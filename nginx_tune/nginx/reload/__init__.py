"""One generation of workers after another: who serves, who leaves, and who answers."""
