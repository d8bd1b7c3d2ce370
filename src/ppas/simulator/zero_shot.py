"""Cost models of pairs that nobody has calibrated: the datasheet, and how far GPUs stay behind it.

``peak`` is what a (model, GPU) pair would take if it reached the datasheet's numbers. A calibrated
pair's coefficients over its peak say how far it stays behind; the geometric mean over pairs,
``over_peak``, is what an unknown pair is given (``conf/cost_model/zero_shot.yaml``). How wrong
that is shows when a calibrated pair is left out (``tables/zero_shot.md``).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import yaml

from ppas.config import CONF, fitted_pairs, load
from ppas.schema import Config
from ppas.simulator.cost_model import CostModel
from ppas.sizing import kv_bytes_per_token

FP4_BYTES = 4.5 / 8  # of a weight in 4 bits, with its share of an 8-bit scale per 16


def peak(config: Config) -> CostModel:
    """Coefficients of a GPU that reaches its datasheet; the client's are a second each.

    Every step reads the weights that a token meets; a token costs two operations per such weight;
    a prefill token and a context token cost four operations per head dimension, in every layer of
    attention; whoever meets a context token reads its keys and values once.
    """
    model, hardware = config.model, config.hardware
    bandwidth = hardware.memory_bandwidth_gb_s * 1e9
    bf16 = hardware.dense_bf16_tflop_s * 1e12
    fp4 = hardware.dense_fp4_tflop_s * 1e12 or bf16
    active = model.active_parameters_b or model.weight_gib * 2**30 / 2 / 1e9
    narrow, wide = model.fp4_parameters_b * 1e9, (active - model.fp4_parameters_b) * 1e9
    read = (2 * wide + FP4_BYTES * narrow) / bandwidth
    kv_read = kv_bytes_per_token(config) / bandwidth
    width = model.attention_heads * model.head_size
    layers = model.layers if model.attention_layers is None else model.attention_layers
    return CostModel(
        t_decode=read,
        kv_decode=kv_read,
        t_mixed=read,
        per_token=2 * wide / bf16 + 2 * narrow / fp4,
        attention=4 * width * layers / bf16,
        kv_reload=kv_read,
        kv_mixed=kv_read,
        kv_tail=kv_read,
        client_submit=1.0,
        client_complete=1.0,
    )


def times_peak(config: Config, factors: Sequence[float]) -> CostModel:
    """A pair's peak, each coefficient times its factor."""
    return CostModel(*(np.array(peak(config)) * np.array(factors)).tolist())


def coefficients(config: Config) -> CostModel:
    """What an uncalibrated pair is given: its peak times its cost model's ``over_peak``."""
    return times_peak(config, CostModel(**vars(config.cost_model.over_peak)))


def calibrated_pairs() -> dict[str, Config]:
    """The pairs of ``conf/cost_model`` that were fitted to published rows, by file name."""
    return {name: load([f"experiment={_experiment(name)}", f"cost_model={name}"])
            for name in fitted_pairs()}  # fmt: skip


def _experiment(pair: str) -> str:
    text = (CONF / "cost_model" / f"{pair}.yaml").read_text()
    return yaml.safe_load(text)["fit"]["experiment"]


def over_peak(pairs: Iterable[Config]) -> CostModel:
    """Geometric mean of fitted over peak, coefficient by coefficient; the client's in seconds."""
    ratios = [
        np.array(CostModel(**vars(pair.cost_model.coefficients))) / np.array(peak(pair))
        for pair in pairs
    ]
    return CostModel(*(float(f"{v:.4g}") for v in np.exp(np.log(ratios).mean(axis=0))))


def independent_of(pair: str, pairs: dict[str, Config]) -> list[str]:
    """The other pairs whose fits did not start from this one's, directly or through another's."""
    return [name for name in pairs if pair not in _ancestry(name, pairs)]


def _ancestry(name: str, pairs: dict[str, Config]) -> list[str]:
    prior = pairs[name].cost_model.fit.get("prior")
    return [name, *(_ancestry(prior, pairs) if prior else [])]
