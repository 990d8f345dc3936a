"""Wrong scores of heads; tests/models/test_retrieval.py catches them."""


def gates_the_wrong_way_round(gated_forward):
    """Take an open gate for a closed one."""
    def forward(module, *args, **kwargs):
        gate, mechanism = vars(module)["_cca_lab_gates"]
        vars(module)["_cca_lab_gates"] = 1 - gate, mechanism
        try:
            return gated_forward(module, *args, **kwargs)
        finally:
            vars(module)["_cca_lab_gates"] = gate, mechanism

    return forward


def maps_one_row_late(attention_maps):
    """Read the rows of the answer, not those that predict it."""
    return lambda model, ids: attention_maps(model, ids).roll(-1, dims=2)
