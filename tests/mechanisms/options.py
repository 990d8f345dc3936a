"""The options that tests of every mechanism take: a new mechanism joins here."""

from hypothesis import strategies as st

# Small options of each mechanism, easy to hard. Most checks run at 11 tokens.
OPTIONS = {
    "full": [{}],
    "cca": [
        {"group": 2, "window": 4},
        {"group": 1, "window": 3},
        {"group": 3, "window": 4},                                # g does not divide s
        {"group": 4, "window": 2},                                # s < g
        {"group": 3, "window": 2, "pooling": "mean"},
        {"group": 3, "window": 2, "per_query_head": True},
        {"group": 3, "window": 1, "pooling": "max"},
        {"group": 20, "window": 2},                               # no group is ever complete
        {"group": 3, "window": 4, "sinks": 2},
        {"group": 4, "window": 2, "sinks": 1},
        {"group": 2, "window": 1, "sinks": 4, "per_query_head": True},
        {"group": 3, "window": 2, "sinks": 20},                   # more sinks than tokens
        {"group": 3, "window": 4, "proportional": True},
        {"group": 2, "window": 1, "sinks": 4, "per_query_head": True, "proportional": True},
    ],
    "dga": [
        {"group": 2, "gamma": 0.3},
        {"group": 3, "gamma": 0.0},                               # only leftover tokens are focal
        {"group": 2, "gamma": 0.0, "floor": 3, "recent": 2, "random": 2, "seed": 1},
        {"group": 2, "gamma": 0.25, "choose": "blocks", "block": 4},
        {"group": 3, "gamma": 0.0, "choose": "blocks", "block": 5},
    ],
    "lococo": [
        {"slots": 3, "segment": 2},
        {"slots": 2, "segment": 1, "weights": "relu"},
        {"slots": 3, "segment": 4, "sinks": 1},  # a segment that exceeds the memory
        {"slots": 4, "segment": 3, "heavy": 2, "scores": "sum"},
    ],
    "minference": [
        {"patterns": [{"pattern": "vertical_slash", "vertical": 2, "slash": 2, "last": 3,
                       "forced_vertical": 1, "forced_slash": 1, "block": 1}]},
        {"patterns": [{"pattern": "a_shape", "sinks": 1, "window": 3}]},
    ],
    "a_shape": [
        {"sinks": 2, "window": 3},
        {"sinks": 0, "window": 1},                                # each row reads itself
        {"sinks": 4, "window": 2},                                # more first tokens than window
        {"sinks": 1, "window": 20},
    ],
    "vertical_slash": [
        {"vertical": 2, "slash": 2, "last": 3, "forced_vertical": 1, "forced_slash": 1, "block": 1},
        {"vertical": 0, "slash": 3, "last": 4, "forced_vertical": 0, "forced_slash": 0, "block": 2},
        {"vertical": 3, "slash": 1, "last": 20, "forced_vertical": 0, "forced_slash": 4,
         "block": 3},
        {"vertical": 1, "slash": 3, "last": 1, "forced_vertical": 2, "forced_slash": 2, "block": 2},
    ],
    "block_sparse": [
        {"block": 2, "top_k": 2},
        {"block": 3, "top_k": 2},                                 # a short last block
        {"block": 2, "top_k": 2, "force_diagonal": False},        # some rows do not read themselves
    ],
    "h2o": [
        {"heavy": 2, "recent": 2},
        {"heavy": 3, "recent": 0},  # a token may go as soon as it has attended
        {"heavy": 0, "recent": 3},                                # a window
        {"heavy": 2, "recent": 1, "prompt": 6},  # several go at once after the prompt
        {"heavy": 0.3, "recent": 0.2, "prompt": 7},
    ],
    "longlora": [
        {"group": 4},
        {"group": 3},                                             # odd, and a short last block
        {"group": 1},
        {"group": 20},  # one block; the shifted heads have two
        {"group": 0.3},                                           # a share of the length
    ],
    "streaming_llm": [
        {"sinks": 1, "recent": 3},
        {"sinks": 2, "recent": 0},                                # a row sees the sinks and itself
        {"sinks": 0, "recent": 2},                                # a plain sliding window
        {"sinks": 4, "recent": 2, "positions": "cache"},
        {"sinks": 20, "recent": 2, "positions": "cache"},         # every token is a sink
    ],
    "lm_infinite": [
        {"local": 3, "global_tokens": 2},
        {"local": 1, "global_tokens": 1},
        {"local": 4, "global_tokens": 0},
        {"local": 2, "global_tokens": 5, "limit": 6},  # limit > local, reached in the text
        {"local": 4, "global_tokens": 3, "limit": 1},
    ],
    "mean_pooling": [{"group": 3, "window": 4}, {"group": 4, "window": 2},
                     {"group": 1, "window": 2}, {"group": 3, "window": 2, "sinks": 2}],
    "random_tokens": [
        {"group": 3, "window": 4},
        {"group": 4, "window": 2, "seed": 1},
        {"group": 1, "window": 2},
        {"group": 3, "window": 2, "sinks": 2},
    ],
}
OPTIONS["kept_heads"] = [
    {"kept": [[0]], "others": {"name": "cca", "group": 3, "window": 2}},
    {"kept": [[]], "others": {"name": "cca", "group": 2, "window": 4, "sinks": 1}},
    {"kept": [[0]], "others": {"name": "mean_pooling", "group": 4, "window": 2}},
]
# Mechanisms whose rows hold their whole past, raw or in groups; the others hold tokens raw.
WHOLE_PAST = {"full", "cca", "dga", "mean_pooling", "kept_heads"}

COUNT, SIZE, SHARE = st.integers(0, 7), st.integers(1, 8), st.sampled_from([0.2, 0.5, 1.0])
A_SHAPE = {"sinks": COUNT, "window": SIZE}
VERTICAL_SLASH = {"vertical": COUNT, "slash": SIZE, "last": SIZE, "forced_vertical": COUNT,
                  "forced_slash": COUNT, "block": st.integers(1, 4)}
BLOCK_SPARSE = {"block": st.integers(1, 4), "top_k": st.integers(2, 4),
                "force_diagonal": st.booleans()}
PATTERNS = st.one_of(*(st.fixed_dictionaries({"pattern": st.just(name), **options})
                       for name, options in (("a_shape", A_SHAPE),
                                             ("vertical_slash", VERTICAL_SLASH),
                                             ("block_sparse", BLOCK_SPARSE))))
GROUPS = {"group": st.integers(1, 5), "window": SIZE, "sinks": st.sampled_from([0, 0, 1, 3, 20])}
# What `exact_when` is tried with: strategies for the options of each mechanism.
DRAWN = {"full": {}, "cca": {**GROUPS, "pooling": st.sampled_from(["softmax", "mean", "max"]),
                             "per_query_head": st.booleans(), "proportional": st.booleans()},
         "dga": {"group": st.integers(1, 5), "gamma": st.sampled_from([0.0, 0.3, 1.0]),
                 "floor": COUNT, "recent": COUNT, "choose": st.sampled_from(["prompt", "blocks"]),
                 "block": SIZE},
         "lococo": {"slots": SIZE, "segment": SIZE,
                    "kernel": st.sampled_from([1, 3]),
                    "weights": st.sampled_from(["softmax", "relu"])},
         "minference": {"patterns": st.lists(PATTERNS, min_size=1, max_size=1)
                        | st.lists(PATTERNS, min_size=2, max_size=2)}, "a_shape": A_SHAPE,
         "vertical_slash": VERTICAL_SLASH, "block_sparse": BLOCK_SPARSE,
         "h2o": {"heavy": SIZE | SHARE, "recent": COUNT | SHARE, "prompt": SIZE},
         "longlora": {"group": st.integers(1, 20) | SHARE},
         "streaming_llm": {"sinks": st.integers(1, 5), "recent": COUNT,
                           "positions": st.sampled_from(["original", "cache"])},
         "lm_infinite": {"local": SIZE, "global_tokens": COUNT}, "mean_pooling": GROUPS,
         "kept_heads": {"kept": st.sampled_from([[[]], [[0]]]), "others": st.fixed_dictionaries(
             {"name": st.just("cca"), **GROUPS})},
         "random_tokens": {**GROUPS, "seed": COUNT}}
