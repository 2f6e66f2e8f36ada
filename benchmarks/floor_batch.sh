#!/bin/sh
# One batch of measurements; each part has its own limit.
mkdir -p "$OUT"
part() { name=$1; limit=$2; shift 2; timeout "$limit" "$@" > "$OUT/$name.txt" 2>&1; echo "== $name: $?"; tail -c "${TAIL:-2500}" "$OUT/$name.txt"; }
part tests 230 python -m pytest -q --maxfail=4 -p no:cacheprovider tests/gpu/test_graphs_gpu.py tests/unit/kernels/attention/test_prefill_attention.py tests/unit/kernels/attention/test_paged_attention.py tests/gpu/test_compilation_gpu.py
part exact 150 python -m pytest -q --maxfail=4 -p no:cacheprovider tests/gpu/test_exactness_gpu.py -k "llama or siblings or groups"
TAIL=4000 part prefill 60 python -m benchmarks.kernels prefill_attention
TAIL=4000 part small 60 python -m benchmarks.kernels.prefill_small
part sms 60 python -m benchmarks.kernels.decode_sms
part mixed 150 python -m benchmarks.kernels.mixed_step
TAIL=700 part fp8 100 python -m thothy_ai.bench benchmarks/workloads/templates.json --shape llama-8b --weights fp8 --kv-dtype fp8 --profile
TAIL=700 part fp8-1280 90 python -m thothy_ai.bench benchmarks/workloads/templates.json --shape llama-8b --weights fp8 --kv-dtype fp8 --token-budget 1280 --profile
TAIL=700 part fp8-1280-no-graphs 90 python -m thothy_ai.bench benchmarks/workloads/templates.json --shape llama-8b --weights fp8 --kv-dtype fp8 --token-budget 1280 --no-graphs
TAIL=700 part qwen-1280 70 python -m thothy_ai.bench benchmarks/workloads/templates.json --shape qwen3-0.6b --token-budget 1280 --profile
TAIL=700 part qwen-2048 70 python -m thothy_ai.bench benchmarks/workloads/templates.json --shape qwen3-0.6b --token-budget 2048
