#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch computes for the trainings of recorded.py: record.py. Needs numpy and torch; the test does not.

Losses and gradients are those of float64. How far rounding carries a training is found by carrying it on in float32 from weights that are moved
by a unit in the last place each, RUNS times: the largest distance so far, over all runs, is what the test's bound rests on."""

import math

import numpy as np
import torch
from recorded import CASES, RECORDED, STEPS, Case

RUNS = 8


def optimizer_of(about, parameters):
    kind, rate, decay = about["optimizer"], about["rate"], about.get("weight_decay", 0)
    if kind == "adamw":
        return torch.optim.AdamW(parameters, rate, weight_decay=decay)
    if kind == "adagrad":
        return torch.optim.Adagrad(parameters, rate, eps=1e-8, weight_decay=decay)
    return torch.optim.SGD(parameters, rate, about["momentum"], weight_decay=decay)


def rate_at(about, step):
    """docs/training.md: the rate rises from 0 over the first steps and falls to 0 over the rest."""
    warmup, steps = about.get("warmup_steps", 0), about.get("steps", 0)
    if step + 1 <= warmup:
        return about["rate"] * (step + 1) / warmup
    if about.get("schedule", "constant") == "constant":
        return about["rate"]
    return about["rate"] * 0.5 * (1 + math.cos(math.pi * min(1, (step - warmup) / (steps - warmup))))


def train(case, dtype, weights):
    """Losses, and the gradients of the first step."""
    torch.set_default_dtype(dtype)
    parameters = {n: torch.nn.Parameter(torch.tensor(a, dtype=dtype)) for n, a in weights.items()}
    optimizer, losses, first = optimizer_of(case.training, list(parameters.values())), [], None
    for step in range(STEPS):
        *inputs, labels = (torch.tensor(a[step], dtype=dtype if a.dtype == np.float32 else None) for a in case.data.values())
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(case.torch(torch, parameters, *inputs).flatten(0, -2), labels.flatten())
        loss.backward()
        first = first or {n: p.grad.double().numpy().copy() for n, p in parameters.items()}
        if "clip_norm" in case.training:
            torch.nn.utils.clip_grad_norm_(parameters.values(), case.training["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = rate_at(case.training, step)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), first


def main():
    torch.set_num_threads(1)
    RECORDED.mkdir(exist_ok=True)
    for name in CASES:
        case, random = Case(name), np.random.default_rng(5)
        weights = case.graph.parameters
        loss, exact = train(case, torch.float64, weights)
        distance = np.zeros((RUNS, STEPS))
        rounding = dict.fromkeys(weights, 0.0)
        for run in range(RUNS):
            moved = {n: a * (1 + random.choice([-1, 0, 1], a.shape) * np.float32(2**-23)) for n, a in weights.items()}
            found, gradients = train(case, torch.float32, moved)
            distance[run] = np.abs(found - loss)
            rounding = {n: max(rounding[n], np.linalg.norm(gradients[n] - exact[n])) for n in weights}
        record = {"loss": loss, "spread": np.maximum.accumulate(distance.max(0))}
        record |= {"exact." + n: g.astype(np.float32) for n, g in exact.items()} | {"rounding." + n: np.float32(r) for n, r in rounding.items()}
        np.savez_compressed(RECORDED / f"{name}.npz", **record)
        print(f"{name}: loss {loss[0]:.4f} -> {loss[-1]:.4f}, spread {record['spread'][-1]:.1e}, {(RECORDED / f'{name}.npz').stat().st_size} bytes")


main()
