"""What the commands run on models: training, measuring, comparing, and the files they leave."""
