"""How alike submissions of one lab are: a report for a person, never a mark.

Glossary
    author      who handed in files, this year or in an earlier year's folder (`fingerprints`).
    fingerprint a hash of `K_CODE` characters in a row of what copydetect leaves of a file: names
                become `V`, strings `S`, comments and blanks nothing (`tokens`).
    boilerplate fingerprints of what the kit itself ships for the lab (`boilerplate`): not counted.
    own         fingerprints of a file that are not boilerplate.
    holders     how many authors have a fingerprint: what many have is expected.
    score       of a pair: the fingerprints that both have, each weighted by how few others have it
                (`pair_scores`).
    passage     lines of one author beside the lines of another that match them (`passages`).

`tokens` runs beside a submission's text, in a process that `fingerprint_reader` opens for each
author and whose answer it checks. Everything after that is arithmetic on arrays of capped length.
"""
