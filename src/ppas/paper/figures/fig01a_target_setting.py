"""Figure 1(a): the setting that P-PAS is for, drawn from the configurations of every study."""

from itertools import accumulate, pairwise

from matplotlib.figure import Figure

from ppas.paper.figures import schematic, style
from ppas.paper.study import Study

EXPERIMENTS = (
    "rtx5090_primary",
    "rtx5090_models_qwen2_5_0_5b",
    "rtx5090_models_smollm3_3b",
    "a100_qwen2_5_3b",
    "h100_qwen2_5_3b",
    "rtx5090_heterogeneous_qwen3_8_27b",
    "rtx5090_heterogeneous_nemotron_30b",
)
WIDTHS = (1, 1, 1.5, 1)  # of the boxes, in places
K = 1024  # tokens
FORMAT = "-NVFP4"  # of weights; too long for a box


def plot(study: Study) -> Figure:
    """From bursty arrivals of long prompts to short responses."""
    configs = [study.config(name) for name in EXPERIMENTS]
    names = [config["model"]["name"].removesuffix(FORMAT) for config in configs]
    models = list(dict.fromkeys(names))
    gpus = list(dict.fromkeys(config["hardware"]["name"] for config in configs))
    prompts, outputs = (
        [n for config in configs for n in config["workload"][key]]
        for key in ("prompt_tokens", "output_tokens")
    )
    texts = (
        "Bursty arrivals\nsteady load, then\nbursts; mixed shapes",
        f"Long contexts\nretrieval, documents,\nagents: {min(prompts) // K}k to "
        f"{max(prompts) // K}k\nprompt tokens",
        "One vLLM engine\n" + "\n".join(models) + f"\non {', '.join(gpus)}",
        f"Short responses\n{min(outputs)} to {max(outputs)} output\ntokens; end-to-end\n"
        "latency counts",
    )
    ends = list(accumulate(WIDTHS))
    figure, axes = schematic.canvas(style.STRIP, columns=ends[-1], rows=1)
    # Where the box's middle is half a place to the right of.
    places = [end - width / 2 - 1 / 2 for end, width in zip(ends, WIDTHS, strict=True)]
    boxes = [schematic.box(axes, place, 0, text) for place, text in zip(places, texts, strict=True)]
    for start, end in pairwise(boxes):
        schematic.arrow(axes, start, end)
    return figure
