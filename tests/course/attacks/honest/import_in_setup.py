# name: an import that was added to the first cell
ANSWER = '''def intervals(length, sinks, group, window):
    n = lambda row: max(0, math.floor((row + 1 - sinks - window) / group))
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
        if source.startswith("import torch"):
            cell["source"] = "import math\n" + source
    path.write_text(json.dumps(notebook))
