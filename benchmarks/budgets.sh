#!/bin/sh
# Drains under several token budgets and house prompts, in one run; the code in ../before is the baseline.
# Writes one JSON document per drain to $OUT and a table of seconds last.
root=$PWD
drain() { # name, tree, house prompt, arguments
    name=$1 tree=$2 house=$3
    shift 3
    (cd "$tree" && timeout 110 python3 -c "
import sys
import thothy_ai.bench.workload as workload
workload.HOUSE_STYLE_TOKENS = $house
from thothy_ai.bench.command import main
main(sys.argv[1:])" "$@" --shape llama-8b --json) >"$OUT/$name.json" 2>"$OUT/$name.err" || tail -3 "$OUT/$name.err"
    python3 -c "
import json, sys
figures = dict(json.load(open('$OUT/$name.json'))['figures'])
print('$name', *(f'{key}={value}' for key, value in list(figures.items())[:12]), flush=True)" 2>/dev/null | tee -a "$OUT/table.txt"
}
templates="benchmarks/workloads/templates.json"
siblings="benchmarks/workloads/siblings.json --order shuffled --kv-tokens 200000"
timeout 60 python3 -m benchmarks.gemm_rows | tee "$OUT/gemm_rows.txt"
[ -d "$root/../before" ] && drain templates-before "$root/../before" 96 $templates
drain templates-1280 "$root" 96 $templates --token-budget 1280
drain templates-8192 "$root" 96 $templates
drain siblings-1280 "$root" 96 $siblings --token-budget 1280
drain siblings-house-300-1280 "$root" 300 $siblings --token-budget 1280
echo; cat "$OUT/table.txt"
