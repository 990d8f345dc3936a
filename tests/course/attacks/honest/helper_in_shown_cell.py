# name: a helper in the cell of an example
ANSWER = '''def intervals(length, sinks, group, window):
    n = lambda row: cores_of_row(row, sinks, group, window)
    c = n(length - 1)
    return torch.tensor([[(0, n(i)), (c, c + min(sinks, i + 1)),
                          (c + min(i + 1, sinks + group * n(i)), c + i + 1)]
                         for i in range(length)])
'''

def change(path, folder):
    import json
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if source.startswith("print(torch.arange"):
            cell["source"] = source + ("\ndef cores_of_row(row, sinks, group, window):\n"
                                       "    return max(0, (row + 1 - sinks - window) // group)\n")
    path.write_text(json.dumps(notebook))
