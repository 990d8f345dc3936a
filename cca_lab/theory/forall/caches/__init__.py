"""The caches of a decoder, run on chunks of symbolic length: what they store, and what a chunk's rows see in it.

The theorems go by induction over the chunks: if a state holds what it should after `seen` tokens, it does after the
next chunk, whose rows then see the columns of the mechanism. So a text may be cut into chunks in any way: prefill
equals decode. They need transformers, as the caches do.
"""
