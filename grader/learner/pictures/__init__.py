"""Pictures of what a learner's own code does. A lab's `pictures.py` takes its names from here."""

from grader.learner.pictures.areas import Areas
from grader.learner.pictures.bars import Bar, Bars
from grader.learner.pictures.combine import Stack
from grader.learner.pictures.drawing import (
    Drawing,
    Key,
    Legend,
    Panel,
    Picture,
    PictureFault,
    launched,
    returned,
)
from grader.learner.pictures.grid import Cell, Grid
from grader.learner.pictures.lines import Lines, Series
from grader.learner.pictures.palette import shade
from grader.learner.pictures.timeline import Span, Timeline

__all__ = [
    "Areas",
    "Bar",
    "Bars",
    "Cell",
    "Drawing",
    "Grid",
    "Key",
    "Legend",
    "Lines",
    "Panel",
    "Picture",
    "PictureFault",
    "Series",
    "Span",
    "Stack",
    "Timeline",
    "launched",
    "returned",
    "shade",
]
