# name: an array of a module that calls itself numpy
# idea: the review's "fake numpy"
# wants: a conversion that runs the student's code
class Fake:
    ndim, shape = 0, ()
    def __array__(self, *args, **more): raise SystemExit(0)
    def item(self): return Fake()
    def __eq__(self, other): return True
    __hash__ = lambda self: 0
Fake.__module__ = "numpy"

def foretell():
    return Fake()

contradict = foretell

def intervals(*sizes):
    return Fake()
