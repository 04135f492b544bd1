"""Intake: who handed in what, in folders and archives.

`submissions` is what the rest of the classroom sees. An archive's bytes are parsed by `archives`,
`zip_entries`, `tar_entries` and `unpacking` only, in a process that `archive_reader` opens for each
archive and whose answer it checks.
"""
