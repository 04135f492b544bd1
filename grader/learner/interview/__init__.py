"""Self-assessment before an interview: questions whose answers are computed, and a deck over them.

question    a generator in `tests/labNN/questions.py`, or a heading of a page's *How to say it
            out loud*; a card is one question, never one set of figures
figure      what a person types: a number with a unit (`grader.suite.quantities`)
deck        which cards are due, by FSRS, in `.infralens/interview.sqlite` (`store`)
drill       a row of due cards in a terminal (`drill`)
"""
