"""The sizes that `cca-lab bench gpu` measures: real ones for a GPU, and tiny ones for Triton's interpreter."""

from dataclasses import dataclass

import torch

Case = tuple[torch.dtype, str, int]  # dtype, mechanism, head dimension
Setting = tuple[int, int]  # group, window


@dataclass(frozen=True)
class Sizes:
    """Sizes of all sections.

    Attributes:
        name: "real" or "toy".
        length: tokens of the correctness checks; not a multiple of any block.
        check_heads: query and KV heads of these checks.
        cases: their dtypes, mechanisms and head dimensions, the most important first.
        check_setting: group and window of these checks.
        check_pattern: tokens of the vertical-slash check, whose reference needs a full L x L matrix, and its options.
        lengths: L of speed, decoding and the model, in the order in which they are measured: if time runs out,
            the last ones are missing.
        heads: query heads and KV heads of the timed attention, as in LLaMA2-7B.
        head_dim: its head dimension D.
        settings: groups and windows of CCA; the targets concern the first one.
        flex_lengths: lengths at which FlexAttention is compiled, which takes tens of seconds each.
        product: rows and columns of the square matrices whose product is the peak.
        copy: bytes of the copy that measures the bandwidth.
        rounds: interleaved rounds; each time is the median over them.
        least: shortest duration of one measurement, in seconds.
        kv_heads: KV heads for the decode kernel, without and with grouped queries.
        model: hidden size, inner size, heads, vocabulary and the most layers of the stack.
    """

    name: str
    length: int
    check_heads: tuple[int, int]
    cases: tuple[Case, ...]
    check_setting: Setting
    check_pattern: tuple[int, dict[str, int]]
    lengths: tuple[int, ...]
    heads: int
    head_dim: int
    settings: tuple[Setting, ...]
    flex_lengths: tuple[int, ...]
    product: int
    copy: int
    rounds: int
    least: float
    kv_heads: tuple[int, ...]
    model: tuple[int, int, int, int, int]


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32

REAL = Sizes(
    name="real", length=16384 + 5, check_heads=(8, 2),
    cases=((BF16, "cca", 128), (BF16, "full", 128), (FP16, "cca", 128), (FP32, "cca", 128),
           (BF16, "streaming_llm", 128), (BF16, "cca", 64), (BF16, "cca", 80), (FP16, "cca", 64), (FP32, "full", 128),
           (FP32, "cca", 64)),
    check_setting=(16, 1024),
    check_pattern=(4096 + 5, {"vertical": 200, "slash": 300, "last": 64, "forced_vertical": 30, "forced_slash": 50,
                              "block": 64}),
    lengths=(32768, 131072, 8192, 65536, 16384, 4096), heads=32, head_dim=128,
    settings=((16, 1024), (16, 4096)), flex_lengths=(32768, 131072), product=8192, copy=1 << 31, rounds=3,
    least=0.02, kv_heads=(32, 8), model=(4096, 11008, 32, 32000, 32))

TOY = Sizes(
    name="toy", length=37, check_heads=(2, 1),
    cases=((BF16, "cca", 16), (FP32, "full", 16), (FP16, "streaming_llm", 20)),
    check_setting=(8, 8),
    check_pattern=(37, {"vertical": 4, "slash": 4, "last": 8, "forced_vertical": 1, "forced_slash": 1, "block": 8}),
    lengths=(32, 48), heads=2, head_dim=16, settings=((8, 16),), flex_lengths=(48,),
    product=64, copy=1 << 16, rounds=1, least=0.0, kv_heads=(2, 1), model=(32, 48, 2, 64, 2))

BY_NAME = {sizes.name: sizes for sizes in (REAL, TOY)}
