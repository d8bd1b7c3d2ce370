"""`ppas profile`: profile one prefill on this host's GPU and write its rows."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from ppas.config import CONF, ROOT, ConfigError
from ppas.profiling.kernels import ProfileError
from ppas.profiling.prefill import PROMPT_TOKENS, REPEATS, TORCH
from ppas.schema import HardwareConfig, ModelConfig, SchedulerConfig

TIMES, COUNTERS = "times", "counters"
NSYS = "nsys"
CPU = "cpu"


class Setup(NamedTuple):
    """What to profile, on what."""

    model: ModelConfig
    hardware: HardwareConfig
    scheduler: SchedulerConfig


def add_parser(commands: Any) -> None:
    """Add ``profile`` to the subcommands of ``ppas``."""
    profile = commands.add_parser(
        "profile",
        help="profile one prefill on this host's GPU (Tables 5 and 6, Figure 5)",
        epilog="Names are files of conf/. A GPU other than --hardware says is refused.",
    )
    what = "kernel times, or hardware counters (needs Nsight Compute)"
    profile.add_argument("what", choices=(TIMES, COUNTERS), help=what)
    examples = {"model": "qwen2_5_3b", "hardware": "rtx5090", "scheduler": "mbt_2k"}
    for name, example in examples.items():
        profile.add_argument(f"--{name}", required=True, help=f"such as {example}")
    tool = "for times; default: nsys where it is installed, else torch"
    profile.add_argument("--tool", choices=(NSYS, TORCH), help=tool)
    python = "the Python that has vLLM; default: this one, or an environment of the Makefile"
    profile.add_argument("--vllm-python", metavar="FILE", help=python)
    profile.add_argument("--prompt-tokens", type=int, default=PROMPT_TOKENS)
    profile.add_argument("--repeats", type=int, default=REPEATS, help="timed prefills")
    engine = """more arguments of vllm.LLM, such as '{"load_format": "dummy"}'"""
    profile.add_argument("--engine", default="{}", metavar="JSON", help=engine)
    out = "default: in results/measured/HARDWARE/profiles"
    profile.add_argument("--out", type=Path, metavar="FILE", help=out)
    profile.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Profile, check that the GPU is the one named, and write the rows."""
    from ppas.profiling import measure, rows
    from ppas.serving import host

    name = f"{args.model}_{args.scheduler}_{args.what}"
    out = args.out or rows.profile_path(ROOT / "results", args.hardware, name)
    setup = read_setup(args)
    job = measure.Job(
        python=host.require_python(setup.hardware, args.vllm_python),
        model=setup.model,
        budget=setup.scheduler.max_num_batched_tokens,
        prompt_tokens=args.prompt_tokens,
        repeats=args.repeats,
        engine=args.engine,
        folder=out.parent / "raw" / out.stem,
    )
    try:
        made = measure.counters(job) if args.what == COUNTERS else measure.times(job, args.tool)
        ran = job.result()
        require_hardware(setup.hardware, ran["device"], args.hardware)
    except ProfileError as error:
        raise ConfigError(f"profile: {error}") from None
    setting = {
        "model": setup.model.name,
        "hardware": setup.hardware.name,
        "scheduler": setup.scheduler.name,
        **{key: ran[key] for key in ("prompt_tokens", "device", "vllm")},
    }
    rows.write_rows(made, setting, out)
    for row in made:
        print(f"{row.metric} {row.value:.4g} ({row.tool})")
    print(out)


def read_setup(args: argparse.Namespace) -> Setup:
    """The named files of ``conf/``: a dense model and a scheduler of fixed budget.

    Raises:
        ConfigError: one line naming file and key.
    """
    model = _read("model", args.model, ModelConfig)
    scheduler = _read("scheduler", args.scheduler, SchedulerConfig)
    if model.experts or model.linear_layers:
        raise ConfigError(
            f"conf/model/{args.model}.yaml: experts, linear_layers: only dense models have the one "
            "gate-up projection per layer that is profiled"
        )
    if scheduler.policy.get("kind") != "static":
        raise ConfigError(
            f"conf/scheduler/{args.scheduler}.yaml: policy.kind: a profile is of a static budget"
        )
    return Setup(model, _read("hardware", args.hardware, HardwareConfig), scheduler)


def _read(group: str, name: str, kind: type) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    path = CONF / group / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in (CONF / group).glob("*.yaml")))
        raise ConfigError(f"conf/{group}: no file {name}.yaml; available: {known}")
    try:
        return OmegaConf.to_object(
            OmegaConf.merge(OmegaConf.structured(kind), OmegaConf.load(path))
        )
    except OmegaConfBaseException as error:
        problem = str(error).strip().splitlines()[0]
        raise ConfigError(f"conf/{group}/{name}.yaml: {error.full_key}: {problem}") from None


def require_hardware(hardware: HardwareConfig, device: str, name: str) -> None:
    """Refuse numbers of one device under the name of another.

    Raises:
        ProfileError: the device's name does not hold the hardware's.
    """
    if (hardware.device or CPU) not in device:
        raise ProfileError(
            f"vLLM ran on {device}, which is not the {hardware.name} of conf/hardware/{name}.yaml; "
            "give the hardware of this host"
        )
