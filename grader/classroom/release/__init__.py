"""`infralens release`: the labs as learners get them, without an answer in them."""
