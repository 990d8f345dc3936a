# name: give the cells other points
# idea: the review's "metadata: ids, points 1000, duplicates, order"
# wants: a grader that reads points, and who is locked, from the submission
def change(path, folder):
    import json
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        about = cell["metadata"].get("nbgrader")
        if about and about.get("grade_id", "").endswith("-answer"):
            about |= {"grade": True, "solution": False, "points": 1000, "locked": False}
        if about and about.get("grade_id", "").endswith("-check"):
            about |= {"points": 1000, "locked": False, "solution": True}
            cell["source"] = "6.0"
    path.write_text(json.dumps(notebook))
