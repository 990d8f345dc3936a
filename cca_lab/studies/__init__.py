"""Every measured number of the lab.

Studies that measure, continue, write and show what they found.
"""
