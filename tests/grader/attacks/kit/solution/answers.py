"""Six small answers: a number, an array, a record, an object, a change in place, and a secret."""

from types_lab91 import Point


def add(a, b):
    """a + b, exactly."""
    # BEGIN SOLUTION add
    return a + b
    # END SOLUTION


def softmax_rows(x):
    """Softmax of each row of x: (M, N)."""
    # BEGIN SOLUTION softmax_rows
    import numpy as np

    weights = np.exp(x - x.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
    # END SOLUTION


def midpoint(a, b):
    """The point half way between a and b."""
    # BEGIN SOLUTION midpoint
    return Point((a.x + b.x) / 2, (a.y + b.y) / 2)
    # END SOLUTION


class Stack:
    """push(item), pop() and the attribute size."""

    def __init__(self):
        # BEGIN SOLUTION Stack
        self._items = []
        # END SOLUTION

    def push(self, item):
        # BEGIN SOLUTION Stack
        self._items.append(item)
        # END SOLUTION

    def pop(self):
        # BEGIN SOLUTION Stack
        return self._items.pop()
        # END SOLUTION

    @property
    def size(self):
        # BEGIN SOLUTION Stack
        return len(self._items)
        # END SOLUTION


def double_in_place(values):
    """Doubles every number of the list, in that list."""
    # BEGIN SOLUTION double_in_place
    values[:] = [2 * value for value in values]
    # END SOLUTION


def passphrase():
    """The word that the suite compares with."""
    # BEGIN SOLUTION passphrase
    return "@PASSPHRASE@"
    # END SOLUTION
