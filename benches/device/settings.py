"""How large a run is: on a GPU with a model's real width, and a dry one that a CPU can do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    # Where PyTorch computes.
    torch_device: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocab: int
    positions: int
    # Rows and lengths on both sides of the kernels' tiles.
    lengths: tuple[int, ...]
    many_rows: int
    long: int
    items: int
    best: int
    # Pools of the parity test, and the least rank correlation in each: among 20, one swap of neighbours costs 0.0015.
    pools: int
    pool: int
    mean_length: int
    spearman: float
    # Batch invariance.
    pairs: int
    alone: int
    shortest: int
    longest: int
    # Speed: pairs of one length, and pairs of mixed ones.
    even_pairs: int
    even_length: int
    mixed_pairs: int
    mixed_mean: int
    repeat: int
    # Of a peer's batch: as many as our own on a large GPU.
    batch_tokens: int
    # Of the ceilings: side of the product, bytes of the copy.
    side: int
    copy_bytes: int


FULL = Settings(
    torch_device="cuda",
    layers=24,
    hidden=1024,
    heads=16,
    intermediate=4096,
    vocab=2_000,
    positions=8_194,
    lengths=(1, 7, 63, 64, 65, 129, 300, 513),
    many_rows=8_192,
    long=8_192,
    items=5_000,
    best=128,
    pools=4,
    pool=128,
    mean_length=150,
    spearman=0.999,
    pairs=10_000,
    alone=50,
    shortest=32,
    longest=512,
    even_pairs=128,
    even_length=300,
    mixed_pairs=4_096,
    mixed_mean=120,
    repeat=15,
    batch_tokens=65_536,
    side=8_192,
    copy_bytes=2 << 30,
)

DRY = Settings(
    torch_device="cpu",
    layers=2,
    hidden=128,
    heads=2,
    intermediate=256,
    vocab=200,
    positions=520,
    lengths=(1, 7, 63, 64, 65, 129),
    many_rows=150,
    long=200,
    items=600,
    best=20,
    pools=1,
    pool=20,
    mean_length=40,
    spearman=0.998,
    pairs=20,
    alone=5,
    shortest=4,
    longest=60,
    even_pairs=8,
    even_length=30,
    mixed_pairs=20,
    mixed_mean=24,
    repeat=3,
    batch_tokens=256,
    side=128,
    copy_bytes=1 << 20,
)
