"""The closed schema of ``conf/``: one dataclass per Hydra group; unknown keys are refused."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ModelConfig:
    """Architecture facts of a model (config.json); defaults are those of a dense one."""

    name: str  # as the paper writes it
    repository: str
    max_model_len: int  # tokens
    layers: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    kv_heads: int
    head_size: int
    weight_gib: float
    kv_bytes: int  # per element of a key or value
    attention_layers: int | None = None  # layers that keep keys and values; all by default
    linear_layers: int = 0  # linear-attention or state-space layers
    state_mib: float = 0.0  # recurrent state of one request, over its linear layers
    experts: int = 0  # per mixture-of-experts layer
    experts_active: int = 0  # of these, how many a token visits
    active_parameters_b: float | None = None  # 1e9 that a token meets; by default all, 2 bytes each
    fp4_parameters_b: float = 0.0  # of these, how many are multiplied in 4 bits
    vocab_size: int = 32_000  # prompts use token ids below this; a lower bound will do
    weights: str = "hub"  # or dummy: a Qwen2 of this shape whose weights vLLM makes up
    serve_options: list[str] = field(default_factory=list)  # flags of vLLM for this model


@dataclass
class HardwareConfig:
    """Datasheet facts of a GPU, and what vLLM needs to be told on it."""

    name: str
    memory_gib: float
    memory_bandwidth_gb_s: float
    dense_bf16_tflop_s: float
    dense_fp4_tflop_s: float = 0.0  # 0: no 4-bit arithmetic; such weights are then widened
    device: str = ""  # part of the name that NVML gives the GPU; none for a CPU
    serve_options: list[str] = field(default_factory=list)  # flags of vLLM on this hardware
    environment: dict[str, str] = field(default_factory=dict)  # variables of its server


@dataclass
class WorkloadConfig:
    """Arrival phases and request lengths; see ``ppas.workload``."""

    phases: list[str]
    burst_rates: list[float]
    prompt_tokens: list[int]
    output_tokens: list[int]
    mix: str


@dataclass
class SchedulerConfig:
    """A scheduler under test: its start-up MBT and its token-budget policy."""

    name: str
    max_num_batched_tokens: int
    policy: dict[str, Any]


@dataclass
class EngineConfig:
    """vLLM's engine options."""

    max_num_seqs: int
    block_size: int
    watermark: float
    reserve_full_prompt: bool
    async_scheduling: bool
    gpu_memory_utilization: float
    max_model_len: int | None = None  # tokens of prompt and output; by default the model's


@dataclass
class CoefficientsConfig:
    """Coefficients in seconds; see ``ppas.simulator.cost_model.CostModel``."""

    t_decode: float
    kv_decode: float
    t_mixed: float
    per_token: float
    attention: float
    kv_reload: float
    kv_mixed: float
    kv_tail: float
    client_submit: float
    client_complete: float


@dataclass
class CostModelConfig:
    """The cost model of a (model, GPU) pair and, for the record, how it was fitted.

    One without coefficients is derived for any pair: ``over_peak`` times its datasheet's peak.
    """

    model: str | None = None  # whose it is, by the names of model and hardware
    hardware: str | None = None
    source: str = "simulated"  # what results made with it are called
    coefficients: CoefficientsConfig | None = None
    over_peak: CoefficientsConfig | None = None  # see ``ppas.simulator.zero_shot``
    fit: dict[str, Any] = field(default_factory=dict)


@dataclass
class BackendConfig:
    """Where the numbers come from; times in seconds."""

    name: str  # simulator or vllm
    first_token: str = "tokens"  # what ends TTFT: the first token id, or the first text
    start_timeout_s: float = 1800.0  # until a server is ready, downloads included
    request_timeout_s: float = 600.0  # from a request's submission to its last token


@dataclass
class Config:
    """The root of ``conf/``."""

    seeds: list[int]
    log_steps: bool
    engine: EngineConfig
    backend: BackendConfig
    model: ModelConfig | None = None
    hardware: HardwareConfig | None = None
    workload: WorkloadConfig | None = None
    cost_model: CostModelConfig | None = None
    scheduler: SchedulerConfig | None = None
    schedulers: dict[str, SchedulerConfig] = field(default_factory=dict)
    seed: int | None = None
    burst_rate: float | None = None
    experiment: str = ""  # the chosen file in conf/experiment
