#!/bin/sh
# Drains of llama-8b with long house prompts, urgent jobs and fp8, one process each; a table last.
# Writes one JSON document per drain to $OUT.
drain() { # name, then arguments of the benchmark
    name=$1
    shift
    timeout 150 python3 -m thothy_ai.bench "$@" --shape llama-8b --json >"$OUT/$name.json" 2>"$OUT/$name.err" ||
        tail -3 "$OUT/$name.err"
    python3 -c "
import json
figures = dict(json.load(open('$OUT/$name.json'))['figures'])
print('$name', *(f'{key}={value}' for key, value in figures.items() if 'start-up' not in key), sep='; ', flush=True)
" | tee -a "$OUT/table.txt"
}
templates="benchmarks/workloads/templates.json"
siblings="benchmarks/workloads/siblings.json --order shuffled --kv-tokens 200000"
fp8="--weights fp8 --kv-dtype fp8"
drain siblings-urgent $siblings --urgent 3
drain siblings-house-300 $siblings --house-prompt 204
drain fp8 $templates $fp8
drain siblings-house-2000 $siblings --house-prompt 1904
drain fp8-8192 $templates $fp8 --token-budget 8192
echo; cat "$OUT/table.txt"
