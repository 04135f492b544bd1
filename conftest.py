"""Hands the tree to the kit's pytest plugin; everything else lives in `grader`."""

pytest_plugins = ["grader.learner.pytest_plugin"]
