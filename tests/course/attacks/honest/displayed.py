# name: display() and a line of magic
ANSWER = '''%matplotlib inline
!echo hello

def intervals(length, sinks, group, window):
    n = lambda row: max(0, (row + 1 - sinks - window) // group)
    c = n(length - 1)
    return torch.tensor([[(0, n(i)), (c, c + min(sinks, i + 1)),
                          (c + min(i + 1, sinks + group * n(i)), c + i + 1)]
                         for i in range(length)])

display(intervals(3, 0, 1, 1))
'''

def change(path, folder):
    pass
