"""Counters for Prometheus, under vLLM's names where it has them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from specchat.engine.protocol.events import Finished
from specchat.serve.queue import FairQueue

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


_SUMS = (
    ("prompt_tokens", "Prompt tokens read or reused.", "prompt_tokens"),
    ("generation_tokens", "Tokens written.", "completion_tokens"),
    ("prefix_cache_queries", "Prompt tokens looked for in the cache.", "prompt_tokens"),
    ("prefix_cache_hits", "Prompt tokens found in the cache.", "reused_tokens"),
    ("shared_steps", "Steps whose passes other replies shared.", "num_shared_steps"),
    ("sharing_replies", "Replies in the passes of shared steps.", "num_sharing_replies"),
    ("spec_decode_num_drafts", "Verify steps with a draft.", "num_spec_steps"),
    ("spec_decode_num_draft_tokens", "Draft tokens.", "num_draft_tokens"),
    ("spec_decode_num_accepted_tokens", "Accepted draft tokens.", "num_accepted_draft_tokens"),
)
"""Counters that add up a figure of each reply: name, description, and the figure of `Stats`."""


class Metrics:
    """Counters of all replies since the start, in a registry of their own."""

    def __init__(self, model: str, queue: FairQueue) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"vllm:{name}", words, ["model_name", *labels], registry=registry)

        def histogram(name: str, words: str) -> Histogram:
            histogram = Histogram(f"vllm:{name}", words, ["model_name"], registry=registry, buckets=SECONDS)
            return histogram.labels(model)

        def gauge(name: str, words: str) -> Gauge:
            return Gauge(f"vllm:{name}", words, ["model_name"], registry=registry).labels(model)

        self._model = model
        self._sums = [(of, counter(name, words).labels(model)) for name, words, of in _SUMS]
        self._ended = counter("request_success", "Replies by the reason of their end.", "finished_reason")
        self._at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by their position.", "position"
        )
        self._ttft = histogram("time_to_first_token_seconds", "Seconds from the engine's start to the first token.")
        self._queued = histogram("request_queue_time_seconds", "Seconds in the queue.")
        self._decode = histogram("request_decode_time_seconds", "Seconds of writing.")
        gauge("num_requests_running", "Requests being answered.").set_function(lambda: queue.running)
        gauge("num_requests_waiting", "Requests in the queue.").set_function(lambda: queue.waiting)
        self._read = {
            "memory": gauge("read_texts_bytes", "Main memory of texts that were read."),
            "disk": gauge("read_texts_disk_bytes", "Room on disk of texts that were read."),
        }

    def finished(self, event: Finished, queued_s: float) -> None:
        """Count a reply that ended."""
        stats = event.stats
        for figure, sum_of in self._sums:
            sum_of.inc(getattr(stats, figure))
        for position in range(max(stats.per_step_accepted, default=0)):
            reached = sum(accepted > position for accepted in stats.per_step_accepted)
            self._at.labels(self._model, str(position)).inc(reached)
        for name, of_place in self._read.items():
            of_place.set(getattr(event.read, name))
        reason = {"context": "length", "cancelled": "abort"}.get(event.reason, event.reason)
        self._ended.labels(self._model, reason).inc()
        self._ttft.observe(stats.ttft_ms / 1e3)
        self._queued.observe(queued_s)
        self._decode.observe(stats.milliseconds / 1e3)

    def failed(self) -> None:
        """Count a reply that failed."""
        self._ended.labels(self._model, "error").inc()

    def page(self) -> bytes:
        """All counters as text."""
        return generate_latest(self._registry)
