"""One module per figure of the paper: ``EXPERIMENTS`` and ``plot(study) -> Figure``."""
