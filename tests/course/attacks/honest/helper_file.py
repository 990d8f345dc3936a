# name: a module beside the notebook
ANSWER = '''from my_helper import cores_of_row

def intervals(length, sinks, group, window):
    n = lambda row: cores_of_row(row, sinks, group, window)
    c = n(length - 1)
    return torch.tensor([[(0, n(i)), (c, c + min(sinks, i + 1)),
                          (c + min(i + 1, sinks + group * n(i)), c + i + 1)]
                         for i in range(length)])
'''
HELPER = '''def cores_of_row(row, sinks, group, window):
    return max(0, (row + 1 - sinks - window) // group)
'''

def change(path, folder):
    (folder / "my_helper.py").write_text(HELPER)
