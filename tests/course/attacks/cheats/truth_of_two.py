# name: a truth value whose byte is neither 0 nor 1
# idea: ours: torch and safetensors keep the bytes of a bool as they come
# wants: to be 1 as a truth value and 2 as a number, or to differ from nothing
def contradict():
    return torch.tensor([2], dtype=torch.uint8).view(torch.bool)

def foretell():
    return torch.tensor([255], dtype=torch.uint8).view(torch.bool)

def intervals(length, sinks, group, window):
    return torch.full((length, 3, 2), 254, dtype=torch.uint8).view(torch.bool)
