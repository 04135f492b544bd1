"""Intake: who handed in what, in folders and archives.

`downloads` reads what other systems hand out; one that is an archive is unpacked by
`unpacked_download`, from what a confined fork says (`entry_frames`).

`submissions` is what the rest of the classroom sees. An archive's bytes are parsed by `archives`,
`zip_entries`, `tar_entries` and `unpacking` only, in a process that `archive_reader` opens for each
archive and whose answer it checks.
"""
