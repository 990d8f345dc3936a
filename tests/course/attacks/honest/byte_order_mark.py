# name: a file that begins with a byte order mark
ANSWER = '''def intervals(length, sinks, group, window):
    n = lambda row: max(0, (row + 1 - sinks - window) // group)
    c = n(length - 1)
    return torch.tensor([[(0, n(i)), (c, c + min(sinks, i + 1)),
                          (c + min(i + 1, sinks + group * n(i)), c + i + 1)]
                         for i in range(length)])
'''

def change(path, folder):
    path.write_text(path.read_text(), encoding="utf-8-sig")
