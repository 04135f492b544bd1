"""The kit's web site, and what is built for it."""
