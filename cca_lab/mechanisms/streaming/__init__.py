"""The first tokens and the most recent ones: StreamingLLM and LM-Infinite."""
