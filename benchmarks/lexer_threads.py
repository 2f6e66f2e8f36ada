"""Fill times by threads and by order, walking: the first time and again. python threads.py FOLDER"""

import sys, time, random, collections

sys.path.insert(0, ".")
import torch, numpy as np

torch.set_num_threads(1)
from transformers import PreTrainedTokenizerFast
from benchmarks.masks import KINDS, jobs
from thothy_ai.engine.grammar import GrammarCompiler
from llguidance import LLExecutor

tok = PreTrainedTokenizerFast(tokenizer_file=sys.argv[1] + "/tokenizer.json")
rng = np.random.default_rng(0)


def allowed(w):
    w = w.view(np.uint32)
    nz = w.nonzero()[0]
    i = int(nz[rng.integers(len(nz))])
    x = int(w[i])
    bits = [b for b in range(32) if x >> b & 1]
    return 32 * i + bits[int(rng.integers(len(bits)))]


N = 240
mask = torch.empty((N, 4096), dtype=torch.int32)


def dealt(x, threads):
    return [e for f in range(threads) for e in x[f::threads]]


for lexers in (16, 4):
    c = GrammarCompiler(tok, 131072, [2], lexers=lexers)
    for threads, order in (
        ((16, "dealt"), (16, "lexer"), (12, "lexer"), (8, "lexer"), (4, "lexer"), (1, "lexer"))
        if lexers == 16
        else ((16, "lexer"), (8, "lexer"))
    ):
        ex = LLExecutor(threads)
        fresh = GrammarCompiler.__new__(GrammarCompiler)
        fresh.__dict__.update(c.__dict__)
        fresh._schemas = collections.OrderedDict()
        for when in ("first", "again"):
            gs = [fresh.compile(s) for s in jobs(KINDS, N, random.Random(1))]
            for g in gs:
                for t in g.forced():
                    g.advance(t)
            rows = sorted(((g, r) for r, g in enumerate(gs)), key=lambda gr: (gr[0]._lexers._rules, gr[1]))
            if order == "lexer":
                rows = sorted(rows, key=lambda gr: id(gr[0].lexer))
            if order == "dealt":
                rows = dealt(rows, threads)
            f, a, ff = [], [], []
            for step in range(30):
                live = [(g, r) for g, r in rows if not g.finished]
                m = [(g.matcher, r) for g, r in live]
                b = time.perf_counter()
                ex.unsafe_compute_mask_ptr(m, mask.data_ptr(), mask.stride(0) * 4, N)
                f.append(time.perf_counter() - b)
                m = [(g.matcher, allowed(mask[r].numpy())) for g, r in live]
                b = time.perf_counter()
                ex.consume_token_par(m)
                a.append(time.perf_counter() - b)
                b = time.perf_counter()
                for g, _ in live:
                    g.matcher.compute_ff_tokens()
                ff.append(time.perf_counter() - b)
            ms = lambda x: f"{np.mean(x) * 1e3:6.2f} (median {np.median(x) * 1e3:6.2f})"
            print(
                f"lexers {len({id(g.lexer) for g in gs})}, threads {threads:2d}, {order:6s} {when:6s} fill {ms(f)}  consume {ms(a)}  ff {ms(ff)} ms per step of ~{N} rows",
                flush=True,
            )
