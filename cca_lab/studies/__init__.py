"""Every measured number of the lab: studies that measure, continue, write and show."""
