"""Which row of CCA-Attention reads which token, and with what weight."""
