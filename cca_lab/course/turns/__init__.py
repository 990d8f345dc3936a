"""The "your turn" cells of the notebooks: tasks without marks, checked like the others.

A notebook holds the solved cell, between the same markers as an assignment's source; `cca-lab
notebooks --student` makes the notebook in which it is to be written.
"""
