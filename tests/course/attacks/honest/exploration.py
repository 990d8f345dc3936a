# name: slow cells of exploration
# slow: 12 seconds
ANSWER = '''def intervals(length, sinks, group, window):
    n = lambda row: max(0, (row + 1 - sinks - window) // group)
    c = n(length - 1)
    return torch.tensor([[(0, n(i)), (c, c + min(sinks, i + 1)),
                          (c + min(i + 1, sinks + group * n(i)), c + i + 1)]
                         for i in range(length)])
'''

def change(path, folder):
    import json
    notebook = json.loads(path.read_text())
    for number in range(4):
        notebook["cells"].insert(2, {
            "cell_type": "code", "id": f"mine-{number}", "metadata": {}, "outputs": [],
            "execution_count": None, "source": "import time\ntime.sleep(3)  # a small experiment"})
    path.write_text(json.dumps(notebook))
