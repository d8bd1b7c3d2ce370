"""Models and inputs that the tests share."""

from pathlib import Path

from ppas.schema import ModelConfig

DATA = Path(__file__).parent / "data"


def make_model(layers: int = 2, hidden: int = 2048, intermediate: int = 11008) -> ModelConfig:
    """A dense model of a shape; the rest does not matter here."""
    return ModelConfig(
        name="Mine",
        repository="none/mine",
        max_model_len=32768,
        layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        attention_heads=16,
        kv_heads=2,
        head_size=128,
        weight_gib=1.0,
        kv_bytes=2,
    )


RECORDED = make_model(hidden=64, intermediate=128)  # the model of cpu.pt.trace.json
