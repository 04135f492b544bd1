"""Automatic mutants: small changes of a reference that its suite must notice."""
