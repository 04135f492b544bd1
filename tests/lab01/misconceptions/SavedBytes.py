from grader.suite import lines, misconception

saved_floats_only = lines(
    """Backward also needs masks and row numbers, and bool and int64 tensors take memory like any
    others.""",
    (
        "if address not in self._excluded",
        "if tensor.is_floating_point() and address not in self._excluded",
    ),
)


saved_without_numbers = lines(
    """A tensor of one number is a storage too: four bytes of float32.""",
    (
        "if address not in self._excluded",
        "if tensor.dim() > 0 and address not in self._excluded",
    ),
)


saved_once_a_version = lines(
    """An operation in place raises a tensor's version and writes to the same storage: it is in
    memory once.""",
    ("address not in self._storages", "(address, tensor._version) not in self._storages"),
    ("self._storages[address] = storage", "self._storages[address, tensor._version] = storage"),
)


saved_excludes_where_a_view_begins = lines(
    """`exclude` speaks of storages: a tensor that is a part of one excludes all of it, so compare
    untyped_storage().data_ptr(), not data_ptr().""",
    (
        "tensor.untyped_storage().data_ptr() for tensor in exclude",
        "tensor.data_ptr() for tensor in exclude",
    ),
)


saved_looks_where_a_view_begins = lines(
    """`exclude` speaks of storages: a tensor that is a part of one excludes all of it, so compare
    untyped_storage().data_ptr(), not data_ptr().""",
    ("if address not in self._excluded", "if tensor.data_ptr() not in self._excluded"),
)


@misconception(replaces="SavedBytes._pack")
def saved_views_twice(self, tensor):
    """Two views of one tensor are one piece of memory: count storages, each once, not tensors."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._excluded:
        self.bytes += storage.nbytes()
    return tensor


@misconception(replaces="SavedBytes._pack")
def saved_parameters_too(self, tensor):
    """Weights that autograd refers to are in memory anyway: what shares a storage with `exclude`
    does not count."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._storages:
        self._storages[storage.data_ptr()] = storage
        self.bytes += storage.nbytes()
    return tensor


@misconception(replaces="SavedBytes._pack")
def saved_size_of_the_view(self, tensor):
    """A view keeps its whole storage alive: half a tensor saved is a whole tensor in memory, so
    add untyped_storage().nbytes(), not the view's own size."""
    address = tensor.untyped_storage().data_ptr()
    if address not in self._excluded and address not in self._storages:
        self._storages[address] = tensor.untyped_storage()
        self.bytes += tensor.numel() * tensor.element_size()
    return tensor


@misconception(replaces="SavedBytes._pack")
def saved_elements(self, tensor):
    """A count of elements is not a count of bytes: float32 has four bytes an element, bf16 two."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._excluded and storage.data_ptr() not in self._storages:
        self._storages[storage.data_ptr()] = storage
        self.bytes += storage.nbytes() // tensor.element_size()
    return tensor


@misconception(replaces="SavedBytes._pack")
def saved_by_first_address(self, tensor):
    """tensor.data_ptr() is where a *view* begins: two views of one storage begin at two addresses.
    untyped_storage().data_ptr() is the storage's."""
    storage, address = tensor.untyped_storage(), tensor.data_ptr()
    if storage.data_ptr() not in self._excluded and address not in self._storages:
        self._storages[address] = storage
        self.bytes += tensor.numel() * tensor.element_size()
    return tensor


@misconception(replaces="SavedBytes._pack")
def saved_always_four_bytes(self, tensor):
    """Not every element has four bytes: bf16 has two. Ask the storage for its nbytes()."""
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in self._excluded and storage.data_ptr() not in self._storages:
        self._storages[storage.data_ptr()] = storage
        self.bytes += 4 * (storage.nbytes() // tensor.element_size())
    return tensor


saved_hooks_stay = lines(
    """Hooks that were pushed must be popped: without leaving saved_tensors_hooks in __exit__,
    every later graph is still counted.""",
    ("        self._hooks.__exit__(*error)\n", ""),
)


saved_counts_backward = lines(
    """The pack hook is called when forward saves a tensor, the unpack hook when backward reads it:
    counting in unpack sees nothing before backward has run.""",
    ("self._pack, lambda saved: saved", "lambda tensor: tensor, self._pack"),
)


@misconception(replaces="SavedBytes.__init__")
def saved_first_excluded_only(self, exclude=()):
    """model.parameters() is an iterator, which can be read once: read all of it when the block is
    made, not anew at every save."""
    parameters = iter(exclude)

    class Once:
        def __contains__(self, address):
            return any(t.untyped_storage().data_ptr() == address for t in parameters)

    self._excluded = Once()
    self._storages = {}
    self.bytes = 0


saved_excludes_objects = lines(
    """autograd saves a weight as it uses it, perhaps transposed: another tensor object over the
    same memory. Compare storages, not the tensors that `exclude` holds.""",
    ("{tensor.untyped_storage().data_ptr() for tensor in exclude}", "list(exclude)"),
    (
        "if address not in self._excluded",
        "if all(tensor is not other for other in self._excluded)",
    ),
)


saved_excludes_equal_shapes = lines(
    """Two tensors of one shape are two pieces of memory: `exclude` says which storages do not
    count, not which sizes.""",
    (
        "{tensor.untyped_storage().data_ptr() for tensor in exclude}",
        "{tensor.shape for tensor in exclude}",
    ),
    ("if address not in self._excluded", "if tensor.shape not in self._excluded"),
)


saved_excludes_every_leaf = lines(
    """Only `exclude` says what is in memory anyway: an input of the block can be a leaf that
    requires a gradient too, and it counts.""",
    (
        "if address not in self._excluded",
        "if not tensor.is_leaf and address not in self._excluded",
    ),
)


saved_excludes_every_parameter = lines(
    """Only `exclude` says what is in memory anyway: without it a module's parameters count like
    other tensors.""",
    (
        "if address not in self._excluded",
        "base = tensor if tensor._base is None else tensor._base\n"
        '        if type(base).__name__ != "Parameter" and address not in self._excluded',
    ),
)

saved_address_given_to_another = lines(
    """An address is remembered, and nothing keeps its storage alive: once that is freed, another
    tensor gets the same address and is not counted.""",
    (
        "            self._storages[address] = storage\n",
        "            self._storages[address] = None\n",
    ),
    gate=False,
)

saved_hooks_stay_after_an_error = lines(
    """The hooks come off only when the block ends without an error; after one, whatever autograd
    saves is still counted.""",
    (
        "        self._hooks.__exit__(*error)\n",
        "        if error[0] is None:\n            self._hooks.__exit__(*error)\n",
    ),
    gate=False,
)

saved_without_masks = lines(
    """Backward also needs masks, and bool tensors take memory like any others: a byte an
    element.""",
    (
        "if address not in self._excluded",
        'if str(tensor.dtype) != "torch.bool" and address not in self._excluded',
    ),
)

saved_without_row_numbers = lines(
    """Backward also needs row numbers, and int64 tensors take memory like any others: eight bytes
    an element.""",
    (
        "if address not in self._excluded",
        'if str(tensor.dtype) != "torch.int64" and address not in self._excluded',
    ),
)

saved_once_a_size = lines(
    """Two tensors of one size are two pieces of memory: a storage is known by its address, not by
    how large it is.""",
    ("address not in self._storages", "storage.nbytes() not in self._storages"),
    ("self._storages[address] = storage", "self._storages[storage.nbytes()] = storage"),
)

saved_once_a_place = lines(
    """Views that begin at different places lie in one storage: it is known by its own address, and
    where a view begins in it does not matter.""",
    (
        "address not in self._storages",
        "(address, tensor.storage_offset()) not in self._storages",
    ),
    (
        "self._storages[address] = storage",
        "self._storages[address, tensor.storage_offset()] = storage",
    ),
)

saved_once_a_tensor_object = lines(
    """autograd hands out tensors over the same memory again and again: compare storages by their
    addresses, not tensor objects.""",
    ("address not in self._storages", "id(tensor) not in self._storages"),
    ("self._storages[address] = storage", "self._storages[id(tensor)] = tensor"),
)

saved_what_needs_a_gradient = lines(
    """What backward needs is not only what has a gradient: constants, masks and statistics are
    saved too.""",
    (
        "if address not in self._excluded",
        "if tensor.requires_grad and address not in self._excluded",
    ),
)

saved_the_last_only = lines(
    """`bytes` is the sum over all storages: each save adds to what was there before.""",
    ("self.bytes += storage.nbytes()", "self.bytes = storage.nbytes()"),
)

saved_the_largest_only = lines(
    """`bytes` is the sum over all storages: all of them wait for backward at the same time.""",
    ("self.bytes += storage.nbytes()", "self.bytes = max(self.bytes, storage.nbytes())"),
)

saved_number_of_tensors = lines(
    """`bytes` counts bytes: a storage adds its nbytes(), not one.""",
    ("self.bytes += storage.nbytes()", "self.bytes += 1"),
)

saved_in_mib = lines(
    """`bytes` is a whole number of bytes: MiB and GiB are for printing.""",
    ("self.bytes += storage.nbytes()", "self.bytes += storage.nbytes() / 2**20"),
)

saved_less_everything_excluded = lines(
    """An excluded tensor that backward does not need is not saved: only what would have been
    counted is left out, and nothing is subtracted for the others.""",
    (
        "        self.bytes = 0\n",
        "        self.bytes = 0\n"
        "        self._less = dict.fromkeys(self._excluded, 0)\n"
        "        self._given = list(exclude)\n",
    ),
    (
        "self._excluded = {tensor.untyped_storage().data_ptr() for tensor in exclude}",
        "exclude = list(exclude)\n"
        "        self._excluded = {tensor.untyped_storage().data_ptr() for tensor in exclude}",
    ),
    (
        "        self._hooks.__enter__()\n",
        "        for given in self._given:\n"
        "            self.bytes -= given.untyped_storage().nbytes()\n"
        "        self._excluded = set()\n"
        "        self._hooks.__enter__()\n",
    ),
)

saved_excludes_with_in = lines(
    """`in` compares a tensor with each of a list element by element, which fails for tensors of
    other shapes: compare storages by their addresses.""",
    (
        "{tensor.untyped_storage().data_ptr() for tensor in exclude}",
        "list(exclude)",
    ),
    ("if address not in self._excluded", "if tensor not in self._excluded"),
)

saved_the_first_excluded_tensor = lines(
    """`exclude` is a collection: every tensor of it is in memory anyway, not only the first.""",
    (
        "{tensor.untyped_storage().data_ptr() for tensor in exclude}",
        "{tensor.untyped_storage().data_ptr() for tensor in list(exclude)[:1]}",
    ),
)

saved_enter_returns_nothing = lines(
    """What __enter__ returns is what stands behind `as`: it must return the object itself.""",
    ("        self._hooks.__enter__()\n        return self\n", "        self._hooks.__enter__()\n"),
)

saved_nothing_after_the_block = lines(
    """`bytes` is read after the block too: leaving it must not set the figure back.""",
    (
        "        self._storages.clear()\n",
        "        self._storages.clear()\n        self.bytes = 0\n",
    ),
)

saved_bytes_at_the_end_only = lines(
    """The figure is set when the block ends; inside the block `bytes` must already say what was
    saved so far.""",
    (
        "self.bytes += storage.nbytes()",
        'self._sum = getattr(self, "_sum", 0) + storage.nbytes()',
    ),
    (
        "        self._storages.clear()\n",
        '        self._storages.clear()\n        self.bytes = getattr(self, "_sum", 0)\n',
    ),
    gate=False,
)

saved_pack_returns_nothing = lines(
    """What pack returns is what backward gets: a hook that only counts must hand the tensor
    back.""",
    ("        return tensor\n", ""),
    gate=False,
)

saved_error_does_not_come_out = lines(
    """An __exit__ that returns a true value swallows the block's exception: it must return
    nothing, so that the error comes out.""",
    ("        self._storages.clear()\n", "        self._storages.clear()\n        return True\n"),
    gate=False,
)

saved_known_to_every_block = lines(
    """What one block has counted is remembered in the class, so that the next one does not count
    it: each block counts for itself.""",
    (
        "self._storages: dict[int, Any] = {}",
        'self._storages = vars(type(self)._pack).setdefault("known", {})',
    ),
    ("        self._storages.clear()\n", ""),
    gate=False,
)

saved_sum_of_all_blocks = lines(
    """The sum is kept in the class and goes on from block to block: each object has a figure of
    its own, from 0.""",
    (
        "        self.bytes = 0\n",
        '        self.bytes = vars(type(self)._pack).get("sum", 0)\n',
    ),
    (
        "self.bytes += storage.nbytes()",
        'self.bytes += storage.nbytes()\n            vars(type(self)._pack)["sum"] = self.bytes',
    ),
)

saved_remembers_the_last_only = lines(
    """Only the storage that was saved last is remembered; one that comes again after another is
    counted twice. Remember all of them.""",
    ("address not in self._storages", "address != next(reversed(self._storages), None)"),
    (
        "            self._storages[address] = storage\n",
        "            self._storages.pop(address, None)\n"
        "            self._storages[address] = storage\n",
    ),
)
