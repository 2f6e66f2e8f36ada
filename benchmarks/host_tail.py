"""host_steps, with the parts of Model.tail timed one by one."""

import sys, time
import torch
from benchmarks import host_steps
from thothy_ai.engine.models.decoder import Model


def main():
    recorder = host_steps.Recorder
    install = recorder.install

    def wrapped(self):
        def tail(model, attended, residual, wanted=None):
            def lap(name, began):
                now = time.perf_counter()
                self._now[name] += (now - began) * 1e3
                return now

            t = time.perf_counter()
            with torch.inference_mode():
                if wanted is not None:
                    attended = attended.index_select(0, wanted)
                    t = lap("-- first index", t)
                    residual = residual.index_select(0, wanted)
                    t = lap("-- second index", t)
                layer = model.decoder.layers[-1]
                update = layer.finish(attended, residual, model.operations)
                t = lap("-- finish", t)
                out = model.decoder.norm(update, residual, model.operations)
                lap("-- norm", t)
                return out

        Model.tail = tail
        install(self)

    recorder.install = wrapped
    host_steps._STAGES = (
        *host_steps._STAGES[:9],
        *((("models.decoder", "Model.logits", x)) for x in ()),
        *host_steps._STAGES[9:],
    )
    report = recorder.report

    def reported(self):
        lines = report(self)
        extra = []
        for key, sums in self._sums.items():
            if sums["steps"]:
                extra.append(
                    f"{key}: "
                    + ", ".join(
                        f"{n} {sums[n] / sums['steps']:.2f}"
                        for n in ("-- first index", "-- second index", "-- finish", "-- norm")
                    )
                )
        return lines + "\n\n" + "\n".join(extra)

    recorder.report = reported
    host_steps.main()


if __name__ == "__main__":
    main()
