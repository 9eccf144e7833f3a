"""Measures the processing of a row of logits on the processor, for the options that people set.

    python -m measure.sampling [--vocab 151936] [--prompt 4600] [--repeats 40]

One thread. The logits have a few likely tokens, as a model's have. The table has milliseconds of the processor for the
scores of a row and for the choice of its token, in the lower quartile.
"""

import argparse
from statistics import quantiles
from time import process_time

import torch

from specchat.engine.decoding.sampler import Sampler
from specchat.engine.protocol.options import Sampling

OPTIONS = {
    "temperature": Sampling(temperature=0.7),
    "top-k": Sampling(temperature=0.7, top_k=20),
    "top-p": Sampling(temperature=0.7, top_p=0.95),
    "top-k, top-p": Sampling(temperature=0.7, top_k=20, top_p=0.95),
    "top-k, top-p, min-p": Sampling(temperature=0.7, top_k=20, top_p=0.95, min_p=0.05),
    "repetition penalty": Sampling(temperature=0.0, repetition_penalty=1.1),
    "300 biases": Sampling(temperature=0.0, logit_bias=dict.fromkeys(range(300), 1.0)),
}
LIKELY, LEAD = 50, 14.0
"""Tokens that are likely, and by how much their logits are larger."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--prompt", type=int, default=4600, help="tokens of the prompt, all unlike")
    parser.add_argument("--repeats", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logits = 3 * torch.randn(options.vocab, generator=torch.Generator().manual_seed(0))
    logits[:LIKELY] += LEAD
    print(f"{'options':>20}  scores  choice")
    for name, sampling in OPTIONS.items():
        sampler = Sampler(sampling)
        history = sampler.history(range(options.prompt))
        processed, chosen = [], []
        for position in range(options.repeats):
            begun = process_time()
            scores = sampler.scores(logits, history)
            between = process_time()
            sampler.pick(scores, position)
            processed.append(1e3 * (between - begun))
            chosen.append(1e3 * (process_time() - between))
        print(f"{name:>20}  {quantiles(processed)[0]:6.2f}  {quantiles(chosen)[0]:6.2f}")


if __name__ == "__main__":
    main()
