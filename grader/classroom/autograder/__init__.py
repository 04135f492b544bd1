"""Autograders for other systems: what is handed to them, and what runs there."""
