"""`ppas import-logs`: logs in the authors' format, with numbers of our own making."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppas import cli, metrics
from ppas.authors_logs import SOURCE, import_logs
from ppas.authors_logs.lines import LONGEST_LINE, RUN_FIELDS, parse
from ppas.authors_logs.matching import RUN_VALUES, assemble, known_names, known_runs
from ppas.paper.tidy import COLUMNS, select
from ppas.results import RECORD_COLUMNS
from ppas.workload import make_trace, parse_phases

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
NEMOTRON, QWEN = "nemotron_30b", "qwen_3b"
LENGTHS = {
    NEMOTRON: ([16384, 32768, 65536, 131072], [16, 32, 64, 128, 256]),
    "unsloth/Qwen3.8-27B-NVFP4": ([8192, 16384, 32768, 65536], [16, 32, 64, 128, 256]),
}


def bursty(rate):
    return f"10:0.2,10:{rate},10:0.2,10:{rate},10:0.2"


def heading(model=QWEN):
    if "/" in model:
        return f"START SERVER: vllm serve {model} --host 0.0.0.0"
    return f"EXPERIMENT: piecewise_model-{model}_p25000_o32_phases-10-0p2_seed0"


def values(config="mbt_2048_s256", *, phases=None, seed=0, prompt=25000, output=32, **changed):
    """A run's result; ``changed`` replaces fields, and None takes one away."""
    phases = phases or bursty(0.4)
    tokens = re.search(r"_(\d+)(k?)", config)
    row = {
        "trace_id": 0,
        "configured_prompt_tokens": prompt,
        "configured_output_tokens": output,
        "phase_schedule": phases,
        "seed": seed,
        "num_requests": len(make_trace(parse_phases(phases), seed, [prompt], [output])),
        "prompt_mean": prompt,
        "prompt_max": prompt,
        "config_name": config,
        "max_num_batched_tokens": int(tokens[1]) * (1024 if tokens[2] else 1),
        "avg_latency": 3.25,
        "p95_latency": 5.5,
        "avg_ttft": 2.0,
        "avg_tpot": 0.04,
        "makespan": 41.0,
        "failed": 0,
        "error": "",
    }
    return {key: value for key, value in (row | changed).items() if value is not None}


def served(config="ppas_plus_16k_1280_s256", *, model=NEMOTRON, phases=None, seed=0, factor=1.0):
    """Request lines and the result of a run with mixed lengths; latencies grow with ``factor``."""
    phases = phases or "20:0.1,10:0.2,20:0.1"
    trace = make_trace(parse_phases(phases), seed, *LENGTHS[model])
    rows = []
    for i, arrival in enumerate(trace.arrivals_s):
        prompt, output = trace.prompt_tokens[i], trace.output_tokens[i]
        ttft = factor * prompt / 10_000
        latency = ttft + factor * 0.01 * (output - 1)
        submitted = arrival + 0.002
        rows.append(
            {
                "config_name": config, "phase_schedule": phases, "seed": seed, "request_id": i,
                "scheduled_arrival_s": arrival, "submitted_s": submitted,
                "first_token_s": submitted + ttft, "completed_s": submitted + latency,
                "latency": latency, "ttft": ttft, "tpot": factor * 0.01,
                "requested_prompt_tokens": prompt, "requested_output_tokens": output,
                "prompt_tokens": prompt, "completion_tokens": output,
            }
        )  # fmt: skip
    latency = [row["latency"] for row in rows]
    last, first = max(row["completed_s"] for row in rows), rows[0]["submitted_s"]
    result = values(
        config, phases=phases, seed=seed, num_requests=len(rows), prompt_mean=None,
        prompt_max=None, avg_latency=float(np.mean(latency)),
        p95_latency=float(np.percentile(latency, 95)),
        avg_ttft=float(np.mean([row["ttft"] for row in rows])), avg_tpot=factor * 0.01,
        makespan=last - first,
    )  # fmt: skip
    return rows, result


def lines_of(rows, result):
    return [*(f"REQUEST_RESULT: {row}" for row in rows), "STOP SERVER", str(result)]


@pytest.fixture
def log(tmp_path):
    """Writes lines to a log and returns its path."""

    def write(*lines, name="a.log", end="\n", start=b""):
        path = tmp_path / name
        path.write_bytes(start + "".join(f"{line}{end}" for line in lines).encode())
        return path

    return write


def refusal(capsys, *arguments):
    """What the command says when it refuses: one line, with status 2."""
    with pytest.raises(SystemExit) as error:
        cli.main(["import-logs", *map(str, arguments)])
    assert error.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


def test_run_values_are_kept_as_the_log_has_them(log):
    imported = import_logs([log("chatter", heading(), str(values(seed=3)))], "RTX5090")
    assert imported.problems == []
    (run,) = imported.runs[imported.runs["experiment"] == "rtx5090_primary"].to_dict("records")
    assert run["scheduler"] == "MBT 2k"
    assert (run["model"], run["hardware"], run["source"]) == ("Qwen2.5-3B", "RTX5090", SOURCE)
    assert (run["burst_rate"], run["seed"], run["prompt_tokens"]) == (0.4, 3, 25000)
    assert {name: run[name] for name in RUN_VALUES} == {
        "e2e_mean_s": 3.25, "e2e_p95_s": 5.5, "ttft_mean_s": 2.0, "tpot_mean_s": 0.04,
        "makespan_s": 41.0,
    }  # fmt: skip
    assert imported.records.empty


def test_a_run_counts_for_every_experiment_that_asks_for_it(log):
    path = log(heading(), str(values(phases=bursty(0.8))))
    assert set(import_logs([path], "rtx5090").runs["experiment"]) == {
        "rtx5090_primary", "rtx5090_prompt_lengths", "rtx5090_output_lengths",
    }  # fmt: skip


def test_request_lines_become_records_that_give_the_runs_values(log):
    imported = import_logs([log(heading(NEMOTRON), *lines_of(*served()))], "RTX5090")
    assert imported.problems == []
    assert list(imported.records) == list(RECORD_COLUMNS)
    (run,) = imported.runs.to_dict("records")
    assert (run["scheduler"], run["experiment"]) == ("P-PAS+", "rtx5090_heterogeneous_nemotron_30b")
    assert pd.isna(run["prompt_tokens"])
    ours = metrics.run_metrics(imported.records).iloc[0]
    for name in ("n_requests", "n_tpot", "e2e_mean_s", "e2e_p95_s", "ttft_mean_s", "tpot_mean_s"):
        assert ours[name] == pytest.approx(run[name]), name
    assert ours["makespan_s"] == pytest.approx(run["makespan_s"] + 0.002)  # from arrival


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("EXPERIMENT: piecewise_model-qwen_3b_p25000_o32_phases-x_seed0", "Qwen2.5-3B"),
        ("RUN: python bench.py --model qwen_3b --prompt-tokens 25000", "Qwen2.5-3B"),
        ("START SERVER: vllm serve HuggingFaceTB/SmolLM3-3B --port 1", "SmolLM3-3B"),
    ],
)
def test_the_last_line_that_names_a_model_holds(log, line, model):
    imported = import_logs([log(heading(NEMOTRON), line, str(values()))], "RTX5090")
    assert imported.problems == []
    assert set(imported.runs["model"]) == {model}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\r\n\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\xff noise\n", b"\xef\xbb\xbf{'"])
def test_line_ends_marks_and_noise(log, end, start):
    """A piece of a dict before the first line is named; the rest never depends on line ends."""
    path = log("100%|#####|", heading(), str(values()), end=end, start=start)
    imported = import_logs([path], "RTX5090")
    assert len(imported.runs) == 1
    assert [problem.partition(": ")[0] for problem in imported.problems] == (
        [f"{path}:1"] if start.endswith(b"{'") else []
    )


def cut(text, upto):
    return text[: text.index(upto)]


BAD_RUNS = {
    "cut": (cut(str(values()), ", 'failed'"), "no whole Python dict"),
    "cut in front": (str(values())[40:], "no whole Python dict"),
    "two in one": (str(values()) * 2, "no whole Python dict"),
    "huge": (str(values(error="x" * LONGEST_LINE)), f"{LONGEST_LINE} at most"),
    "nested": ("{'config_name':" + "[" * 5000, "no whole Python dict"),
    "a set": ("{1, 2}", "no whole Python dict"),
    "no field": (str(values(avg_ttft=None)), "no 'avg_ttft'"),
    "no outcome": (str(values(failed=None)), "no 'failed'"),
    "failed": (str(values(failed=2, error="boom")), "failed: 2, error: 'boom'"),
    "error only": (str(values(error="timeout\nat 3 s")), "error: 'timeout\\nat 3 s'"),
    "nan": (str(values(avg_tpot=float("nan"))), "avg_tpot: nan is not a finite number"),
    "inf": (str(values(makespan=float("inf"))), "makespan: inf is not a finite number"),
    "-inf": (str(values(makespan=-float("inf"))), "makespan: -inf is not a finite number"),
    "negative": (str(values(avg_ttft=-1.0)), "avg_ttft: -1.0 is not a finite number"),
    "endless": (str(values(avg_ttft=10**400)), "avg_ttft: 1000"),
    "bool": (str(values() | {"seed": True}), "seed: True is not a whole number"),
    "text": (str(values() | {"num_requests": "13"}), "num_requests: '13' is not a whole"),
    "no phases": (str(values() | {"phase_schedule": None}), "phase_schedule: None is not a text"),
    "bad phases": (str(values() | {"phase_schedule": "x"}), "phase_schedule: 'x' is not duration"),
    "unknown": (str(values() | {"config_name": "magic"}), "config_name 'magic' is unknown; say"),
    "no cap": (str(values("ppas_16k_s256")), "config_name 'ppas_16k_s256' is unknown"),
    "other MBT": (str(values(max_num_batched_tokens=1024)), "max_num_batched_tokens is 1024"),
    "other trace": (str(values(num_requests=12)), "num_requests: 12, but seed 0 brings 13"),
    "other seed": (str(values(seed=7)), "seed 7; take it out"),
    "mixed": (str(values(prompt_mean=20000)), "prompt_mean: 20000, configured 25000"),
    "other GPU": (str(values(phases=bursty("2.0"))), "pass --hardware H100-SXM, which has it"),
}


@pytest.mark.parametrize(("line", "problem"), BAD_RUNS.values(), ids=BAD_RUNS)
def test_a_bad_run_is_named_by_file_line_and_remedy(log, capsys, tmp_path, line, problem):
    path = log(heading(), str(values("mbt_16384_s256")), line)
    said = refusal(capsys, path, "--out", tmp_path / "out")
    assert said.startswith(f"ppas: {path}:3: ")
    assert problem in said and ";" in said.partition(problem)[2]
    assert "--partial" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "line",
    [
        "REQUEST_RESULT: {code}",
        "{{'config_name': {code}}}",
        "{{{code}: 1}}",
        "{{**{code}}}",
        "{{'config_name': [x for x in [{code}]]}}",
        "{{'config_name': f'{{{code}}}'}}",
    ],
)
def test_code_is_refused_and_never_run(log, capsys, tmp_path, line):
    trap = tmp_path / "trap"
    path = log(heading(), line.format(code=f'__import__("os").system("touch {trap}")'))
    assert f"{path}:2: " in refusal(capsys, path)
    assert not trap.exists()


def changed(i, **fields):
    def change(rows, result):
        return [row | fields if row["request_id"] == i else row for row in rows], result

    return change


BAD_REQUESTS = {
    "one missing": (lambda rows, result: (rows[1:], result), 8, "num_requests: 6, but 5"),
    "one twice": (lambda rows, result: ([*rows, rows[0]], result), 10, "but 7 REQUEST_RESULT"),
    "ids twice": (changed(1, request_id=0), 9, "lines with 5 ids"),
    "cut short": (changed(2, completion_tokens=3), 9, "request_id 2: 65536 prompt and 3 output"),
    "no answer": (changed(2, first_token_s=None), 4, "first_token_s: None is not a finite"),
    "failed": (changed(3, error="reset"), 5, "error: 'reset'"),
    "other values": (changed(4, latency=99.0), 9, "avg_latency: "),
    "other makespan": (changed(5, completed_s=99.0), 9, "makespan: "),
    "no result": (lambda rows, result: (rows, "KeyboardInterrupt"), 2, "has no result below"),
}


@pytest.mark.parametrize(("change", "line", "problem"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_run_with_bad_requests_is_not_used(log, capsys, change, line, problem):
    path = log(heading(NEMOTRON), *lines_of(*change(*served())))
    said = refusal(capsys, path)
    assert said.startswith(f"ppas: {path}:{line}: ")
    assert problem in said


def test_a_run_told_twice_is_named_with_both_places(log, capsys):
    first = log(heading(), str(values()))
    again = log(heading(), str(values(avg_latency=9.0)), name="b.log")
    assert f"{again}:2: tells the run of {first}:2 again" in refusal(capsys, first, again)
    assert "nothing is left" in refusal(capsys, first, first, "--partial")


def test_a_seed_that_one_scheduler_lacks_is_named_and_used_for_none(log, capsys):
    runs = [values(seed=0), values(seed=1), values("mbt_16384_s256", seed=1)]
    path = log(heading(), *map(str, runs))
    assert "MBT 16k lacks seed 0, which another scheduler has" in refusal(capsys, path)
    imported = import_logs([path], "RTX5090")
    assert set(imported.runs["seed"]) == {1}


@pytest.mark.parametrize(
    ("lines", "arguments", "problem"),
    [
        (["nothing here"], [], "a.log: no result in it"),
        ([], [], "a.log: no result in it"),
        ([str(values())], [], "a.log:1: no EXPERIMENT, RUN or START SERVER line"),
        ([heading("llama"), str(values())], [], "model 'llama' is unknown; say what it is with"),
        ([], ["--hardware", "TPU"], "--hardware TPU: not one of"),
        ([], ["--name", "a=b"], "--name a=b: not LOGGED=CONF"),
        ([], ["missing.log"], "missing.log: No such file"),
        ([heading(), str(values())], ["--out", __file__], "pass a folder"),
    ],
)
def test_bad_usage_is_one_line(log, capsys, lines, arguments, problem):
    path = log(*lines)
    if "--out" in arguments:
        with pytest.raises(SystemExit):
            cli.main(["import-logs", str(path), *arguments])
        assert problem in capsys.readouterr().err
    else:
        assert problem in refusal(capsys, path, *arguments)


def test_utf_16_is_no_result(log, tmp_path, capsys):
    path = tmp_path / "powershell.log"
    path.write_text(f"{heading()}\n{values()}\n", encoding="utf-16")
    assert "as UTF-8 text" in refusal(capsys, path)


@pytest.mark.parametrize(
    ("config", "scheduler"), [("adaptive_16384", "P-PAS"), ("static_16384", "MBT 16k")]
)
def test_a_name_the_logs_do_not_explain_is_given_by_hand(log, config, scheduler):
    path = log(heading("mine"), str(values(config)))
    names = ["mine=qwen2_5_3b", "adaptive_16384=ppas", "static_16384=mbt_16384"]
    imported = import_logs([path], "RTX5090", names)
    assert imported.problems == []
    assert imported.runs["scheduler"].unique() == [scheduler]


def logged_cells(table, spread=0.0):
    """Lines of five seeds each whose means are the cells that the paper prints."""
    cells = pd.read_csv(PUBLISHED / f"table{table:02d}.csv", dtype={"burst": str})
    configs = {"P-PAS": "ppas_16k_2048_s256"}
    lines = [heading()]
    for (burst, scheduler), cell in cells.groupby(["burst", "scheduler"]):
        number = re.search(r"\d+", scheduler)
        config = configs.get(scheduler) or f"mbt_{int(number[0]) * 1024}_s256"
        means = cell.set_index("metric")["value"]
        for seed in range(5):
            factor = 1 + spread * (seed - 2)
            told = {logged: float(means[ours] * factor) for ours, logged in RUN_VALUES.items()}
            lines.append(str(values(config, phases=bursty(burst), seed=seed, **told)))
    return lines


def test_tables_come_back_from_logs_that_hold_them(log, capsys, tmp_path):
    path, out = log(*logged_cells(9, spread=0.1)), tmp_path / "out"
    cli.main(["import-logs", str(path), "--out", str(out)])
    printed = capsys.readouterr().out
    assert re.search(r"MBT 2k +0\.4 5 of 5 +3\.348 +3\.348 +[+-]0\.0", printed)
    assert (
        "table09_primary: 180 of 180 printed numbers recomputed, 180 to the printed digit"
        in printed
    )
    assert "table02_models: not recomputed: no pair" in printed
    table = pd.read_csv(out / "table09_primary.csv", dtype={"burst": str})
    assert list(table) == [*COLUMNS, "seeds"]
    assert set(table["source"]) == {SOURCE}
    assert set(table["seeds"]) == {5}
    cell = select(table, scheduler="MBT 2k", burst="0.4", metric="e2e_mean_s").iloc[0]
    assert cell["value"] == pytest.approx(3.348)
    assert cell["std"] == pytest.approx(3.348 * 0.1 * np.std([-2, -1, 0, 1, 2], ddof=1))
    # From printed cells, Table 1's percentages come back up to the rounding of both.
    improvements = pd.read_csv(out / "table01_primary_improvement.csv")
    np.testing.assert_allclose(improvements["value"], improvements["published"], atol=0.1)
    runs = pd.read_parquet(out / SOURCE / "rtx5090_primary" / "runs.parquet")
    assert len(runs) == 36 * 5
    assert not list(out.rglob("records.parquet"))
    assert metrics.cells(runs)["n"].eq(5).all()


def test_values_of_another_gpu_are_not_taken_for_the_default_one(log, capsys):
    path = log(*[line for line in logged_cells(12) if "10:1.0" in line or "EXPERIMENT" in line])
    said = refusal(capsys, path)
    assert "off the published RTX5090, 1.0 times off H100-SXM" in said
    cli.main(["import-logs", str(path), "--hardware", "H100-SXM"])
    printed = capsys.readouterr()
    assert "table12_h100: 10 of 20 printed numbers recomputed, 10 to the" in printed.out
    assert printed.err == ""
    cli.main(["import-logs", str(path), "--hardware", "RTX5090"])
    assert "1.0 times off H100-SXM" in capsys.readouterr().err


def mixed_study(skip=()):
    """Both mixed studies over seed 0: every scheduler as much slower than P-PAS+ as printed."""
    table = pd.read_csv(PUBLISHED / "table08.csv")
    qwen = "unsloth/Qwen3.8-27B-NVFP4"
    studies = {
        NEMOTRON: ("Nemotron", "ppas{}_16k_1280_s256", "20:0.1,{}:{},20:0.1", (0.2, 0.8)),
        qwen: ("Qwen3.8", "ppas{}_2k_768_s20", "20:0.05,{}:{},20:0.05", (0.1, 0.4)),
    }
    for model, (prefix, adaptive, phases, rates) in studies.items():
        yield heading(model)
        rows = table[table["model"].str.startswith(prefix)]
        rows = rows[rows["metric"] == "improvement_pct:e2e_mean"]
        configs = {adaptive.format("_plus"): 1.0}
        for pair, percent in zip(rows["scheduler"], rows["value"], strict=True):
            other = pair.removeprefix("P-PAS+ vs ")
            config = adaptive.format("") if other == "P-PAS" else f"mbt_{other}_s256"
            configs[config] = 1 / (1 - percent / 100)
        for seconds in (10, 20, 40):
            for rate in rates:
                condition = phases.format(seconds, rate)
                if condition in skip:
                    continue
                for config, factor in configs.items():
                    told = served(config, model=model, phases=condition, factor=factor)
                    yield from lines_of(*told)


def test_table_8_and_its_request_wins_come_from_request_lines(log, capsys, tmp_path):
    out = tmp_path / "out"
    cli.main(["import-logs", str(log(*mixed_study())), "--out", str(out)])
    assert "table08_heterogeneous: " in capsys.readouterr().out
    table = pd.read_csv(out / "table08_heterogeneous.csv")
    means = table[table["metric"] == "improvement_pct:e2e_mean"]
    assert len(means) == 14
    np.testing.assert_allclose(means["value"], means["published"], atol=1e-4)
    assert table.loc[table["metric"] == "request_wins_pct", "value"].eq(100).all()
    assert table.loc[table["source"] == SOURCE, "seeds"].eq(1).all()
    assert (out / SOURCE / "rtx5090_heterogeneous_nemotron_30b" / "records.parquet").exists()


def test_no_table_averages_over_conditions_that_the_logs_lack(log, capsys):
    cli.main(["import-logs", str(log(*mixed_study(skip=["20:0.1,40:0.8,20:0.1"])))])
    said = capsys.readouterr().out
    assert re.search(r"table08_heterogeneous: not recomputed: .* has 5 of 6 conditions", said)


def test_partial_names_what_it_leaves_out_and_keeps_the_rest(log, capsys):
    path = log(heading(), str(values()), str(values(seed=1, failed=1, error="boom")))
    cli.main(["import-logs", str(path), "--partial"])
    printed = capsys.readouterr()
    assert "1 of 5" in printed.out
    assert f"left out: {path}:3: failed: 1, error: 'boom'" in printed.err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        cli.main(["import-logs", "--help"])
    said = capsys.readouterr().out
    for word in ("examples:", "--hardware H100-SXM", "--name adaptive_s256=ppas", "--partial",
                 "published-raw", "A log names no GPU"):  # fmt: skip
        assert word in said


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
WHOLE = str(values())
LINES = st.one_of(
    st.text(),
    st.just(heading()),
    st.text().map("REQUEST_RESULT: {}".format),
    st.text().map("{{'config_name': {}}}".format),
    ANYTHING.map(repr),
    st.dictionaries(st.sampled_from([*RUN_FIELDS, "failed", "error"]), ANYTHING).map(
        lambda fields: str(values() | fields)
    ),
    st.tuples(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), st.text(max_size=3)).map(
        lambda at: WHOLE[: at[0]] + at[2] + WHOLE[at[1] :]
    ),
)


@given(st.lists(LINES, max_size=6))
def test_no_line_raises_and_each_problem_is_one_line(lines):
    logged, problems = parse(lines, "a.log")
    made = assemble(logged, "RTX5090", known_names(), known_runs())
    for problem in problems + made.problems:
        assert len(problem.splitlines()) == 1
        assert re.match(r"a\.log(:\d+)?: |\w+, burst rate", problem)
    assert np.isfinite(made.runs[list(RUN_VALUES)].to_numpy(dtype=float)).all()


@given(st.binary(max_size=400))
def test_bytes_without_a_result_are_a_problem(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "a.log"
    path.write_bytes(content)
    imported = import_logs([path], "RTX5090")
    assert imported.runs.empty
    assert imported.problems
