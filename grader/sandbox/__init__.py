"""The wall between student code and verdicts. Knows nothing of pytest."""
