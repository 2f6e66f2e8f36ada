#!/bin/sh
# One batch of measurements; each part has its own limit.
mkdir -p "$OUT"
part() { name=$1; limit=$2; shift 2; timeout "$limit" "$@" > "$OUT/$name.txt" 2>&1; echo "== $name: $?"; tail -c 3000 "$OUT/$name.txt"; }
templates="python -m thothy_ai.bench benchmarks/workloads/templates.json"
part fp8 70 $templates --shape llama-8b --weights fp8 --kv-dtype fp8
part prefill 40 python -m benchmarks.kernels prefill_attention
part sms 30 python -m benchmarks.kernels.decode_sms
part graphs 40 python -m pytest -q --maxfail=4 -p no:cacheprovider tests/gpu/test_graphs_gpu.py
part qwen-1280 40 $templates --shape qwen3-0.6b --token-budget 1280
part small 40 python -m benchmarks.kernels.prefill_small
part exact 90 python -m pytest -q --maxfail=4 -p no:cacheprovider tests/gpu/test_exactness_gpu.py -k "(llama or siblings or groups) and not delays"
