"""A `.cu` file on the CPU: compiled with hooks, launched as a process, counted by line."""
