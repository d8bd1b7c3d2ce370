"""One module per table of the paper: ``EXPERIMENTS``, ``TITLE`` and ``build(study)``."""
