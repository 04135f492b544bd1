from types_lab91 import Point


def add(a, b):
    return 0


def softmax_rows(x):
    return x


def midpoint(a, b):
    return Point((a.x + b.x) / 2, (a.y + b.y) / 2)


class Stack:
    def __init__(self):
        self.items = []
        self.size = 0

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop(0)


def double_in_place(values):
    values[:] = [2 * value for value in values]
