"""P-PAS: prefill-pressure adaptive scheduling for long-context LLM serving."""

__version__ = "0.1.0"
