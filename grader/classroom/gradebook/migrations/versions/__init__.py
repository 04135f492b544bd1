"""One module a revision, each with the step from the one before it."""
