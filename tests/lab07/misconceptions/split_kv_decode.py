from grader.suite import misconception


@misconception()
def workers_count_alike(q, k, v, num_splits, scale=None):
    """The workers' outputs are averaged with equal weights; a worker whose keys score high carries
    more of the softmax, exp(lse_worker)."""
    n = -(-k.shape[2] // num_splits)
    parts = [
        flash_forward(q, k[:, :, j : j + n], v[:, :, j : j + n], 1, n, scale=scale)
        for j in range(0, k.shape[2], n)
    ]
    o = sum(o for o, _ in parts) / len(parts)
    return o, torch.logsumexp(torch.stack([lse for _, lse in parts]), 0)


@misconception()
def lse_of_the_largest_worker(q, k, v, num_splits, scale=None):
    """The merged lse is the largest worker's; it is the logarithm of the SUM of all
    exp(lse_worker)."""
    n = -(-k.shape[2] // num_splits)
    parts = [
        flash_forward(q, k[:, :, j : j + n], v[:, :, j : j + n], 1, n, scale=scale)
        for j in range(0, k.shape[2], n)
    ]
    lse = torch.stack([lse for _, lse in parts])
    w = torch.softmax(lse, 0)
    return sum(w_n[..., None] * o for w_n, (o, _) in zip(w, parts)), lse.amax(0)


@misconception()
def one_worker_does_it_all(q, k, v, num_splits, scale=None):
    """All keys go through one product: with one query row there is then one block of work for the
    whole GPU."""
    return flash_forward(q, k, v, 1, max(k.shape[2], 1), scale=scale)
