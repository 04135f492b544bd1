"""Pictures of what a learner's own code does."""
