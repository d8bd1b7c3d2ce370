"""P-PAS on a real vLLM server; `ppas.serving.scheduler` is what `--scheduler-cls` names."""
