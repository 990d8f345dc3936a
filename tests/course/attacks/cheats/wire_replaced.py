# name: replace what packs the answers
# idea: the review's 21 forged frames: pack, json, safetensors replaced
# wants: bytes that the other side does not expect
# alone: nobody else is heard
import json, sys
import safetensors.torch
safetensors.torch.save = lambda *args, **more: b"\xff" * 64
wire = sys.modules.get("wire")
if wire is not None:
    def pack(value, **more):
        text = b'{"dict": {"callback": 0, "args": {"list": [], "tuple": false}}}'
        return len(text).to_bytes(8, "big") + text
    wire.pack = pack
    for thing in __import__("gc").get_objects():
        if getattr(thing, "__name__", "") == "serve" and hasattr(thing, "__globals__"):
            thing.__globals__["pack"] = pack

def intervals(length, sinks, group, window):
    return torch.zeros(length, 3, 2, dtype=torch.long)
