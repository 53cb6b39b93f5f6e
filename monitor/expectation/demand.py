"""How many requests could run at once: what the memory holds, and what the demand asks for.

Rules of this file:

1. Demand is capped by what the hardware could hold [B_hw], never by what was configured: a
   server with too small a KV pool would otherwise be judged by its own fault. The configured
   pool [B_pool] is for the diagnosis.
2. A slot of recurrent state per request is the best legal configuration, so one is counted.
3. A cap that the operator wants (latency) is no fault: it lowers the demand.
"""

from __future__ import annotations

from monitor.expectation.model_shape import kv_bytes_per_sequence, kv_shards
from monitor.expectation.step_time import Machine
from monitor.model import Unknown

_USABLE_SHARE = 0.9
"""Share of a GPU's memory for weights, cache and state: the engines' usual reservation."""


def hardware_batch(machine: Machine, tokens_per_request: float) -> float | Unknown:
    """Give how many requests of P + O tokens the GPUs' memory holds [B_hw].

    (0.9 memory - weights) / (kv (P+O)/shards + S/tp), per GPU of the replica; experts divide over
    the expert-parallel GPUs, other weights over the replica's. 0 where the weights do not fit.
    """
    shape, memory, tp = machine.shape, machine.hardware.memory_bytes, machine.parallel.tensor
    if memory is None:
        return Unknown("memory batch", "the GPU's total memory is not known")
    if shape.resident_bytes is None:
        return Unknown("memory batch", "the weights' size in memory is not known")
    kv = kv_bytes_per_sequence(shape, tokens_per_request) / kv_shards(shape, tp)
    each = kv + shape.state_bytes_per_sequence / tp
    if each <= 0.0:
        return Unknown("memory batch", "the cache bytes of a request are not known")
    experts = shape.experts * shape.expert_bytes
    weights = (shape.resident_bytes - experts) / tp + experts / machine.parallel.expert_gpus
    return max(0.0, memory * _USABLE_SHARE - weights) / each


def pool_batch(
    tokens_per_request: float,
    kv_pool_tokens: float | None,
    state_slots: float | None = None,
    slots_per_request: float = 1.0,
) -> float | Unknown:
    """Give how many requests the configured pools hold [B_pool], for the diagnosis only.

    min(KV pool tokens / (P+O), state slots / slots per request).
    """
    caps = []
    if kv_pool_tokens is not None:
        caps.append(kv_pool_tokens / tokens_per_request)
    if state_slots is not None:
        caps.append(state_slots / slots_per_request)
    if not caps:
        return Unknown("pool batch", "the engine tells neither KV pool nor state slots")
    return min(caps)


def demand_batch(
    running: float,
    waiting: float,
    memory_batch: float | Unknown,
    intended_max_running: float | None = None,
) -> float | Unknown:
    """Give how many requests would run if nothing but memory and the operator held them back.

    B_dem = min(B + W, B_hw, intended cap). What runs already fits, so B_hw counts as B at
    least; and with nothing waiting the memory does not matter.
    """
    caps = [running + waiting]
    if intended_max_running is not None:
        if not intended_max_running > 0.0:
            return Unknown("demand", f"an intended cap of {intended_max_running:g} is none")
        caps.append(intended_max_running)
    if waiting > 0.0:
        if isinstance(memory_batch, Unknown):
            return Unknown("demand", f"requests wait, and {memory_batch.reason}")
        caps.append(max(running, memory_batch))
    return min(caps)
