"""The papers' printed tables: numbers that follow from others, and sentences about them."""
