"""Compares an imported run with what its tool says: tests/import_peers.sh runs it as TOOL FILE RUN."""

import csv
import glob
import json
import os
import sys

MS = 1000.0


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values)


def summaries(run):
    paths = sorted(glob.glob(os.path.join(run, "cells", "*", "summary.json")))
    loaded = [json.load(open(path)) for path in paths]
    return sorted(loaded, key=lambda summary: summary["imported"]["line"])


def of_aiperf(path):
    """The figures of AIPerf's CSV, which it rounds to two decimals."""
    rows = {}
    with open(path.replace(".json", ".csv"), newline="") as file:
        header = []
        for row in csv.reader(file):
            if row and row[0] == "Metric":
                header = row
            elif row:
                rows[row[0]] = dict(zip(header, row))
    latencies = {
        "ttft": "Time to First Token (ms)",
        "tpot": "Inter Token Latency (ms)",
        "itl": "Inter Chunk Latency (ms)",
        "e2e": "Request Latency (ms)",
    }
    statistics = {"mean": "avg", "median": "p50", "p90": "p90", "p99": "p99", "max": "max", "std": "std"}
    figures = {
        f"{ours}_{kind}_ms": float(rows[label][theirs])
        for kind, label in latencies.items()
        for ours, theirs in statistics.items()
    }
    for name, label in {
        "request_throughput_req_s": "Request Throughput (requests/sec)",
        "output_throughput_tok_s": "Output Token Throughput (tokens/sec)",
        "goodput_req_s": "Goodput (requests/sec)",
        "completed_requests": "Request Count",
    }.items():
        figures[name] = float(rows[label]["Value"])
    return [(figures, 0.00501)]


def of_guidellm(path):
    """Figures from the requests of each benchmark, in full digits."""
    figures = []
    for benchmark in json.load(open(path))["benchmarks"]:
        requests = benchmark["requests"]["successful"]
        output = sum(request["output_tokens"] for request in requests)
        figures.append(
            (
                {
                    "completed_requests": len(requests),
                    "failed_requests": len(benchmark["requests"]["errored"]),
                    "output_tokens": output,
                    "mean_ttft_ms": mean(request["time_to_first_token_ms"] for request in requests),
                    "max_ttft_ms": max(request["time_to_first_token_ms"] for request in requests),
                    "mean_tpot_ms": mean(request["inter_token_latency_ms"] for request in requests),
                    "mean_e2e_ms": mean(request["request_latency"] for request in requests) * MS,
                    "output_throughput_tok_s": output / benchmark["duration"],
                },
                1e-3,
            )
        )
    return figures


def of_inference_perf(path):
    """Figures from the list of requests, in full digits."""
    requests = json.load(open(os.path.join(os.path.dirname(path), "per_request_lifecycle_metrics.json")))
    done = [request for request in requests if not request.get("error")]
    starts, ends = ([request[key] for request in done] for key in ("start_time", "end_time"))
    duration = max(ends) - min(starts)
    return [
        (
            {
                "completed_requests": len(done),
                "mean_e2e_ms": mean(end - start for start, end in zip(starts, ends)) * MS,
                "max_e2e_ms": max(end - start for start, end in zip(starts, ends)) * MS,
                "duration_s": duration,
                "request_throughput_req_s": len(done) / duration,
            },
            1e-3,
        )
    ]


def of_genai_bench(path):
    """Figures from the list of requests, in full digits."""
    document = json.load(open(path))
    done = [request for request in document["individual_request_metrics"] if not request["error_code"]]
    output = sum(request["num_output_tokens"] for request in done)
    return [
        (
            {
                "completed_requests": len(done),
                "output_tokens": output,
                "mean_ttft_ms": mean(request["ttft"] for request in done) * MS,
                "mean_tpot_ms": mean(request["tpot"] for request in done) * MS,
                "max_e2e_ms": max(request["e2e_latency"] for request in done) * MS,
                "output_throughput_tok_s": output / document["aggregated_metrics"]["run_duration"],
            },
            1e-3,
        )
    ]


def main():
    tool, path, run = sys.argv[1:]
    expected = {
        "aiperf": of_aiperf,
        "guidellm": of_guidellm,
        "inference-perf": of_inference_perf,
        "genai-bench": of_genai_bench,
    }[tool](path)
    imported = summaries(run)
    if len(imported) != len(expected):
        sys.exit(f"{len(imported)} results were imported, {len(expected)} measured")
    wrong = []
    for at, (summary, (figures, tolerance)) in enumerate(zip(imported, expected), 1):
        for name, value in figures.items():
            ours = summary["figures"]["current"].get(name)
            if ours is None or abs(ours - value) > tolerance + 1e-6 * abs(value):
                wrong.append(f"result {at}: {name} is {ours}, {tool} has {value}")
        if (summary.get("validity") or {}).get("verdict") == "invalid":
            wrong.append(f"result {at} is invalid: {summary['validity']}")
    if wrong:
        sys.exit("\n".join(wrong))
    count = sum(len(figures) for figures, _ in expected)
    print(f"{count} figures of {len(expected)} results are those of {imported[0]['imported'].get('tool_version') or 'the tool'}")


if __name__ == "__main__":
    main()
