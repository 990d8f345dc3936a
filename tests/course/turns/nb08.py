"""Wrong answers to the turns of notebook 08_caches_and_decoding."""

import torch


def _keep(x, sinks, recent):
    return x if len(x) <= sinks + recent else torch.cat([x[:sinks], x[len(x) - recent:]])


def _step(*, first=False, itself=True, keep=_keep, power=0.5):
    def step(query, key, value, past_keys, past_values, sinks, recent):
        keys, values = torch.cat([past_keys, key[None]]), torch.cat([past_values, value[None]])
        read = (keep(keys, sinks, recent), keep(values, sinks, recent)) if first else (keys, values)
        read = read if itself or len(read[0]) == 1 else (read[0][:-1], read[1][:-1])
        output = torch.softmax(read[0] @ query / len(query) ** power, dim=0) @ read[1]
        return output, keep(keys, sinks, recent), keep(values, sinks, recent)
    return step


def _twice(x, sinks, recent):
    return torch.cat([x[:sinks], x[-recent:]])


def _ones(past, chunk):
    return torch.ones(chunk, past + chunk).bool()


WRONG = {
    "08.2": {
        "evicts first": (_step(first=True), "eviction comes first"),
        "not itself": (_step(itself=False), "does not attend to itself"),
        "no scale": (_step(power=0), "not divided by sqrt(D)"),
        "keeps twice": (_step(keep=_twice), "kept twice"),
        "keeps everything": (_step(keep=lambda x, sinks, recent: x), "nothing is evicted"),
        "no sinks": (_step(keep=lambda x, sinks, recent: x[-(sinks + recent):]),
                     "the sinks are dropped"),
        "only an output": (lambda query, key, value, keys, values, sinks, recent: value,
                           "wanted three things"),
    },
    "08.4": {
        "top left": (lambda past, chunk: _ones(past, chunk).tril(), "top left"),
        "not itself": (lambda past, chunk: _ones(past, chunk).tril(past - 1), "its own token"),
        "the whole chunk": (lambda past, chunk: _ones(past, chunk), "its future included"),
        "only the past":
            (lambda past, chunk: torch.arange(past + chunk).expand(chunk, -1) < past,
             "are not seen"),
        "additive": (lambda past, chunk: torch.zeros(chunk, past + chunk), "wanted bools"),
    },
}
