from grader.suite import misconception


@misconception()
def each_tensor_for_itself(params, max_norm, error_if_nonfinite=False):
    """Each tensor is clipped by its own norm, which bends the step: the gradients are ONE vector,
    and all of them shrink by one factor."""
    grads = [p.grad for p in params if p.grad is not None]
    total = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.mul_((max_norm / (g.norm() + 1e-6)).clamp(max=1.0))
    return total


@misconception()
def returns_the_norm_after_clipping(params, max_norm, error_if_nonfinite=False):
    """The norm AFTER clipping comes back, which is max_norm whenever it matters; the norm before
    is what tells that a run is about to diverge."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))


@misconception()
def norms_are_added(params, max_norm, error_if_nonfinite=False):
    """The tensors' norms are added up; lengths of perpendicular parts add as squares: the norm of
    everything is the root of the sum of all squares."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).sum()
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


@misconception()
def no_root(params, max_norm, error_if_nonfinite=False):
    """The sum of squares is taken for the norm: its root is missing."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.stack([g.square().sum() for g in grads]).sum()
    for g in grads:
        g.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


@misconception()
def short_gradients_grow(params, max_norm, error_if_nonfinite=False):
    """Every gradient is brought to length max_norm, short ones too: clipping never makes a
    gradient longer, so the factor is at most 1."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.mul_(max_norm / (norm + 1e-6))
    return norm


@misconception()
def clips_values(params, max_norm, error_if_nonfinite=False):
    """Each element is cut to [-max_norm, max_norm]; that is clipping by value, which changes the
    direction of the step."""
    grads = [p.grad for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    for g in grads:
        g.clamp_(-max_norm, max_norm)
    return norm


@misconception()
def walks_the_generator_twice(params, max_norm, error_if_nonfinite=False):
    """The parameters are walked twice, but `model.parameters()` is a generator: the second walk
    finds nothing, so nothing is clipped."""
    norms = [p.grad.norm() for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    for p in params:
        if p.grad is not None:
            p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


@misconception()
def new_gradient_tensors(params, max_norm, error_if_nonfinite=False):
    """`.grad` is replaced by a new tensor; whoever else holds the gradient (a view of a DDP
    bucket, an optimizer's list) keeps the unclipped one. Multiply in place."""
    params = [p for p in params if p.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in params]))
    for p in params:
        p.grad = p.grad * (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return norm


@misconception()
def calls_the_library(params, max_norm, error_if_nonfinite=False):
    """torch.nn.utils.clip_grad_norm_ is called; it is what you are writing here."""
    return torch.nn.utils.clip_grad_norm_(params, max_norm, error_if_nonfinite=error_if_nonfinite)
